"""Sums by group, audited from outside: answers about neighbouring labels prove no more than the ε that was paid.

Both bounds that must hold are wrong with probability ALPHA at most; that is how often this file fails by chance. With
ANSWERS answers a side of two groupings an auditor proves over half of an ε of 1. Three planted bugs, the controls, are
found: noise for a domain that is one label too narrow, a grouping that pays nothing, and groups that depend on labels.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from label_dp.companions.kinds.sum import LabelLattice
from label_dp.domain import Domain
from labels_party.companions.audit_bounds import audit
from labels_party.companions.kinds.sum import GroupColumns, noisy_groupings
from labels_party.mechanisms.entropy import LaplaceNoise, discrete_laplace

pytestmark = pytest.mark.extended

ALPHA = 1e-6
ANSWERS = 12_000
COLUMNS = GroupColumns((("a",), ("b",)))
CODES = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])  # of four examples
LOW, HIGH = [0, 2, 1, 2], [2, 2, 1, 2]  # neighbours: the first example's label
HIGH_SUMS = 4, 3  # of the first cell of each grouping
HALF = Fraction(1, 2)


def answers(
    labels: list[int],
    noises: tuple[LaplaceNoise, LaplaceNoise],
    codes: Callable[[Any], Any] = lambda _labels: CODES,
) -> list[Any]:
    """Per answer, in how many groupings the first cell has at least its sum of the labels HIGH: what tells most."""
    numbers = np.array(labels)
    drawn = {id(noise): iter(discrete_laplace(noise, 2 * ANSWERS).reshape(ANSWERS, 2)) for noise in noises}

    def draw(noise: LaplaceNoise, n: int) -> Any:
        one = next(drawn[id(noise)])
        return one[:n]

    figures = []
    for _ in range(ANSWERS):
        found = noisy_groupings(COLUMNS, codes(numbers), numbers, noises, draw)
        figures.append(sum(int(one["sums"][0]) >= high for one, high in zip(found, HIGH_SUMS, strict=True)))
    return figures


def proved(*noises: LaplaceNoise, codes: Callable[[Any], Any] = lambda _labels: CODES) -> float:
    pair = (noises[0], noises[1])
    return audit(answers(LOW, pair, codes), answers(HIGH, pair, codes), ALPHA / 2)


def noise(sensitivity: int, epsilon: Fraction = HALF) -> LaplaceNoise:
    return LaplaceNoise(sensitivity, epsilon)


WIDTH = LabelLattice.of(Domain.parse("0:2")).sensitivity


def test_answers_about_neighbours_prove_no_more_than_was_paid() -> None:
    assert 0.5 < proved(noise(WIDTH), noise(WIDTH)) <= 1


PLANTS: dict[str, Callable[[], float]] = {
    "a domain one label too narrow": lambda: proved(noise(WIDTH - 1), noise(WIDTH - 1)),
    "one grouping pays nothing": lambda: proved(noise(WIDTH, Fraction(1)), noise(WIDTH, Fraction(1))),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_control_a_planted_bug_is_found(plant: str) -> None:
    assert PLANTS[plant]() > 1


def test_control_groups_that_depend_on_labels_are_found() -> None:
    def by_label(labels: Any) -> Any:
        return np.stack([labels, CODES[:, 1]], axis=1)

    cells = [
        noisy_groupings(COLUMNS, by_label(np.array(labels)), np.array(labels), (noise(2), noise(2)))
        for labels in (LOW, HIGH)
    ]
    assert cells[0][0]["cells"] != cells[1][0]["cells"]
    whole = [noisy_groupings(COLUMNS, CODES, np.array(labels), (noise(2), noise(2))) for labels in (LOW, HIGH)]
    assert [[(one["cells"], one["n"]) for one in found] for found in whole] == [[([[0], [1]], [2, 2])] * 2] * 2


@pytest.mark.parametrize("labels", [[0, 0, 0, 0], [2, 2, 2, 2]])
def test_as_many_draws_whatever_the_labels(labels: list[int]) -> None:
    asked: list[int] = []

    def draw(_noise: LaplaceNoise, n: int) -> Any:
        asked.append(n)
        return np.zeros(n, np.int64)

    noisy_groupings(COLUMNS, CODES, np.array(labels), (noise(2), noise(2)), draw)
    assert asked == [2, 2]
