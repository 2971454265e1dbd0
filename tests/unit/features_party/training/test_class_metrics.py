"""Metrics of classes against sums over true labels, an AUC by pairs, and what channels do not tell."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from features_party.training.class_metrics import (
    NAMES,
    ClassMetrics,
    class_members,
    indicators_of,
    judge_classes,
    told_indicators,
)
from features_party.training.intervals import NO_FOLDS, Folds
from label_dp.channels.base import Channel
from tests.support.classes import ClassWorld, k_ary, kept
from tests.support.messages import draw, laplace, rr

W = ClassWorld.of(400, 3, 1)
TRUE = np.eye(3)[W.labels.astype(int)]


def judged(f: np.ndarray, g: np.ndarray, examples: np.ndarray | None = None, folds: Folds = NO_FOLDS) -> ClassMetrics:
    found = judge_classes(f, W.shares, g, np.arange(len(f)) if examples is None else examples, folds)
    assert isinstance(found, ClassMetrics)
    return found


def by_pairs(f: np.ndarray, own: np.ndarray) -> float:
    ones, zeros = f[own], f[~own]
    return float(np.mean((ones[:, None] > zeros) + 0.5 * (ones[:, None] == zeros)))


def test_true_labels_give_the_plain_figures() -> None:
    f, y = np.round(W.truth, 2) + 1e-3, W.labels.astype(int)
    f /= f.sum(axis=1, keepdims=True)
    found = judged(f, TRUE)
    at = np.arange(400)
    assert found.accuracy.estimate == pytest.approx(np.mean(f.argmax(axis=1) == y))
    assert found.constant_accuracy.estimate == pytest.approx(np.mean(W.shares.argmax() == y))
    assert found.log_loss.estimate == pytest.approx(-np.mean(np.log(f[at, y])))
    assert found.constant_log_loss.estimate == pytest.approx(-np.mean(np.log(W.shares[y])))
    gain = found.constant_log_loss.estimate - found.log_loss.estimate
    assert found.log_loss_below_constant.estimate == pytest.approx(gain)
    assert found.macro_auc is not None
    assert found.macro_auc.estimate == pytest.approx(np.mean([by_pairs(f[:, c], y == c) for c in range(3)]))
    assert (found.macro_auc_classes, found.rows) == (3, 400)


def test_the_error_of_the_macro_auc_is_that_of_the_bootstrap() -> None:
    rng, f, y = np.random.default_rng(2), W.truth, W.labels.astype(int)
    drawn = []
    for _ in range(300):
        rows = rng.integers(0, 400, 400)
        drawn.append(np.mean([by_pairs(f[rows, c], y[rows] == c) for c in range(3)]))
    found = judged(f, TRUE).macro_auc
    assert found is not None
    # of 300 draws a standard deviation is known to 4 %
    assert found.standard_error == pytest.approx(np.std(drawn), rel=0.2)


def test_classes_that_are_told_without_a_doubt_are_not_certain_to_be() -> None:
    found = judged(TRUE, TRUE).macro_auc
    assert found is not None
    assert found.estimate == found.high == 1.0
    assert 0.9 < found.low < 1.0


@pytest.mark.parametrize("channel", [k_ary(3, "1"), laplace("0:2", 2.0)])
def test_what_an_output_says_has_the_indicator_as_its_expectation(channel: Channel) -> None:
    found = indicators_of(channel)
    assert not isinstance(found, str)
    assert channel.rows(0, 3) @ found == pytest.approx(np.eye(3), abs=1e-9)


@pytest.mark.parametrize("channel", [kept(np.array([0.5, 0.45, 0.05]), "1"), rr("0:2", 2.0, cuts=(1,))])
def test_a_channel_that_takes_classes_together_is_a_sentence(channel: Channel) -> None:
    why = indicators_of(channel)
    assert isinstance(why, str)
    assert "does not tell all classes apart" in why
    outputs = np.zeros(5, np.int64)
    assert told_indicators([k_ary(3, "1"), channel], np.array([0, 1, 0, 1, 0]), outputs) == why
    members = class_members(why)
    assert all(members[name] is None and members[f"{name}_why"] == why for name in NAMES)


def test_outputs_of_two_messages_say_what_their_own_channels_say() -> None:
    channels, message = [k_ary(3, "1"), k_ary(3, "3")], (np.arange(400) % 2).astype(np.int8)
    outputs = np.where(message == 0, draw(channels[0], W.labels, 1), draw(channels[1], W.labels, 2))
    found = told_indicators(channels, message, outputs)
    assert not isinstance(found, str)
    for number, channel in enumerate(channels):
        own = indicators_of(channel)
        assert not isinstance(own, str)
        np.testing.assert_array_equal(found[message == number], own[outputs[message == number]])


def test_rows_of_one_example_and_folds_widen_intervals() -> None:
    plain = judged(W.truth, TRUE)
    twice = judged(np.repeat(W.truth, 2, axis=0), np.repeat(TRUE, 2, axis=0), np.repeat(np.arange(400), 2))
    folds = judged(W.truth, TRUE, folds=Folds(4))
    first = judged(W.truth, TRUE, folds=Folds(4, used=1))
    for name in ("log_loss", "log_loss_below_constant", "macro_auc"):
        one, same, wide, of_one = (getattr(found, name).standard_error for found in (plain, twice, folds, first))
        assert same == pytest.approx(one, rel=0.02), name
        assert wide == pytest.approx(one * np.sqrt(1 + 4 / 3), rel=1e-6), name
        assert of_one == pytest.approx(one * np.sqrt(1 + 1 / 3), rel=1e-6), name


def test_rare_classes_do_not_count_and_too_few_rows_are_a_sentence() -> None:
    labels = np.append(np.zeros(200, int), np.append(np.ones(190, int), np.full(10, 2)))
    found = judged(W.truth, np.eye(3)[labels])
    assert found.macro_auc_classes == 2
    assert found.macro_auc is not None
    assert found.macro_auc.estimate == pytest.approx(np.mean([by_pairs(W.truth[:, c], labels == c) for c in range(2)]))
    faint = k_ary(3, "0.05")
    g = told_indicators([faint], np.zeros(400, np.int8), draw(faint, W.labels))
    assert not isinstance(g, str)
    none = judged(W.truth, g)
    assert none.macro_auc is None
    assert none.macro_auc_classes == 0
    assert "four of its standard errors" in none.macro_auc_why
    few = judge_classes(W.truth[:29], W.shares, TRUE[:29], np.arange(29))
    assert few == "not estimated: 29 examples are too few for an interval, which needs 30"
    assert list(itertools.islice(class_members(few), 1)) == ["accuracy"]
