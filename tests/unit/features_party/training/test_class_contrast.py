"""The contrast of classes by which large categories differ: found whatever the order of classes, and above chance."""

from __future__ import annotations

import numpy as np
import pytest

from features_party.training.class_contrast import contrast
from features_party.training.class_likelihood import ClassLikelihood
from tests.support.classes import k_ary
from tests.support.messages import draw

N, VALUES, CHANNEL = 20_000, 100, k_ary(3, "2")


def outputs_of(labels: np.ndarray) -> ClassLikelihood:
    outputs = draw(CHANNEL, labels.astype(float), 1)
    return ClassLikelihood.through([CHANNEL], np.zeros(N, np.int8), outputs, CHANNEL.domain)


def drawn() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(codes, labels, how often the middle class comes at the code): the mean of the numbers is 1 at every code."""
    rng = np.random.default_rng(4)
    often = rng.uniform(0.1, 0.7, VALUES)
    codes = rng.integers(0, VALUES, N).astype(np.int32)
    labels = np.where(rng.random(N) < often[codes], 1, 2 * rng.integers(0, 2, N))
    return codes, labels, often


def by_code(values: np.ndarray, codes: np.ndarray) -> np.ndarray:
    return np.bincount(codes, values, VALUES) / np.bincount(codes, minlength=VALUES)


def test_it_tells_categories_apart_where_the_numbers_of_classes_do_not() -> None:
    codes, labels, often = drawn()
    found = by_code(contrast(outputs_of(labels), codes[:, None]), codes)
    assert abs(np.corrcoef(found, often)[0, 1]) > 0.9
    plain = by_code(CHANNEL.debiased_outputs()[outputs_of(labels).outputs], codes)
    assert abs(np.corrcoef(plain, often)[0, 1]) < 0.4  # control, four standard errors of no correlation


def test_it_is_the_same_for_every_order_of_the_classes() -> None:
    codes, labels, _ = drawn()
    told, order = outputs_of(labels), np.array([2, 0, 1])
    other = ClassLikelihood((told.given[0][order],), told.message, told.outputs, told.prior)
    one, two = contrast(told, codes[:, None]), contrast(other, codes[:, None])
    assert np.abs(one) == pytest.approx(np.abs(two), abs=1e-6 * np.abs(one).max())


def test_a_category_of_many_values_that_says_nothing_does_not_lead() -> None:
    """By chance alone it has more between its values than the other; that much is taken off."""
    codes, labels, often = drawn()
    many = np.random.default_rng(5).integers(0, 5000, N).astype(np.int32)
    found = by_code(contrast(outputs_of(labels), np.stack([codes, many], axis=1)), codes)
    assert abs(np.corrcoef(found, often)[0, 1]) > 0.9


def test_outputs_that_say_nothing_give_zeros() -> None:
    blind = ClassLikelihood((np.full((3, 2), 0.5),), np.zeros(10, np.int8), np.zeros(10, int), np.full(3, 1 / 3))
    assert not contrast(blind, np.zeros((10, 1), np.int32)).any()
