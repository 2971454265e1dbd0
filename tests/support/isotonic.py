"""Oracles of isotonic regression: every monotone function of a tiny instance, and every run of the private one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from labels_party.companions.mechanisms.isotonic import antichains, constrained, total_order
from labels_party.companions.mechanisms.isotonic.grid import LossGrid
from labels_party.companions.mechanisms.isotonic.posets import Poset
from labels_party.companions.mechanisms.isotonic.total_order import DomainNode, OrderedExamples
from labels_party.mechanisms.choice import weights

Labels = npt.NDArray[np.int64]
Choice = Callable[[Labels, Fraction], int]


def poset_of(size: int, pairs: Iterable[tuple[int, int]]) -> Poset:
    """The least partial order with a < b for every pair (a, b)."""
    below = np.zeros((size, size), np.bool_)
    for a, b in pairs:
        below[a, b] = True
    for c in range(size):  # everything below c is below everything above c
        below |= below[:, c, None] & below[c]
    return Poset(below)


def root(data: OrderedExamples, grid: LossGrid) -> DomainNode:
    return DomainNode(0, data.x_size, 0, data.xs.size, 0, grid.size)


def brute_scores(data: OrderedExamples, grid: LossGrid, node: DomainNode) -> list[int]:
    """As `total_order.cut_scores`, by trying every monotone function."""
    labels, edges = grid.prepared(data.labels), data.ends[node.left : node.right + 1].tolist()
    groups = list(itertools.pairwise(edges))
    costs = [[int(grid.costs(v, labels[a:b]).sum()) for a, b in groups] for v in range(grid.size)]

    def least(part: range, values: range) -> int:
        functions = itertools.combinations_with_replacement(values, len(part))
        return min(sum(costs[v][j] for v, j in zip(f, part, strict=True)) for f in functions)

    below, above = range(node.first, node.middle), range(node.middle, node.stop)
    return [least(range(j), below) + least(range(j, len(groups)), above) for j in range(len(groups) + 1)]


def choosing(patch: pytest.MonkeyPatch, choice: Choice) -> None:
    """Every choice without sizes is `choice` of scores and rate."""
    for module in (total_order, constrained, antichains):
        patch.setattr(module, "choose", lambda scores, rate, source, sizes=None: choice(scores, rate))


def every_run(run: Callable[[], Any]) -> Iterator[tuple[tuple[int, ...], Fraction, Any]]:
    """All sequences of cuts that `run` can draw, each with its exact probability and what `run` gave.

    `run` draws by `choose` without sizes, or point by point of a tiny domain; the probabilities are the integer weights
    of `choice.weights`.
    """
    script: list[int] = []
    while True:
        made, chance, given = _run(run, script)
        yield tuple(at for at, _ in made), chance, given
        while made and made[-1][0] == made[-1][1] - 1:
            made.pop()
        if not made:
            return
        script = [at for at, _ in made[:-1]] + [made[-1][0] + 1]


def _run(run: Callable[[], Any], script: list[int]) -> tuple[list[tuple[int, int]], Fraction, Any]:
    """The cuts (which, of how many) of the run that begins with `script` and goes on with first cuts."""
    made: list[tuple[int, int]] = []
    chance = [1, 1]  # reduced once, at the end

    def among(each: list[int]) -> int:
        at = script[len(made)] if len(made) < len(script) else 0
        chance[0] *= each[at]
        chance[1] *= sum(each)
        made.append((at, len(each)))
        return at

    def scripted(scores: Labels, rate: Fraction) -> int:
        return among(_weights(scores.tobytes(), rate))

    def point(scores: Labels, starts: list[int], sizes: list[int], rate: Fraction, source: Any) -> int:
        each = weights(scores, rate, sum(sizes))
        points = [start + i for start, size in zip(starts, sizes, strict=True) for i in range(size)]
        return points[among([weight for weight, size in zip(each, sizes, strict=True) for _ in range(size)])]

    with pytest.MonkeyPatch.context() as patch:
        choosing(patch, scripted)
        patch.setattr(total_order, "choose_point", point)
        patch.setattr(total_order, "uniform_below", lambda bound, source: among([1] * bound))
        given = run()
    return made, Fraction(*chance), given


@lru_cache(maxsize=1 << 14)
def _weights(scores: bytes, rate: Fraction) -> list[int]:
    """Neighbouring labels and neighbouring runs have mostly the same scores."""
    each = np.frombuffer(scores, np.int64)
    return weights(each, rate, each.size)


def largest_quotient(pairs: Iterable[tuple[Fraction, Fraction]]) -> Fraction:
    """Of all pairs, by integers: fractions would be reduced to be compared."""
    most, least = 0, 1
    for one, other in pairs:
        above, below = one.numerator * other.denominator, one.denominator * other.numerator
        if above * least > most * below:
            most, least = above, below
    return Fraction(most, least)


def scored_runs(run: Callable[[], Any]) -> Iterator[tuple[list[int], list[list[int]], Any]]:
    """All runs: what was chosen, the scores of every choice on the way, and what `run` gave."""
    script: list[int] = []
    while True:
        seen: list[list[int]] = []

        def scripted(scores: Labels, rate: Fraction, script: list[int] = script, seen: list[Any] = seen) -> int:
            seen.append(scores.tolist())
            return script[len(seen) - 1] if len(seen) <= len(script) else 0

        with pytest.MonkeyPatch.context() as patch:
            choosing(patch, scripted)
            given = run()
        made = script + [0] * (len(seen) - len(script))
        yield made, seen, given
        while made and made[-1] == len(seen[len(made) - 1]) - 1:
            made = made[:-1]
        if not made:
            return
        script = [*made[:-1], made[-1] + 1]


def scores_are_least_losses(run: Callable[[], Any], loss: Callable[[Any], int]) -> list[Any]:
    """What all runs give, after a check of every score of every choice.

    The least loss of what can still come of a run, less that before its latest choice, must be the score of what was
    chosen less the least score there: choices of different nodes bear on different examples.
    """
    best: dict[tuple[int, ...], int] = {}
    scores: dict[tuple[int, ...], list[int]] = {}
    outcomes = []
    for made, seen, given in scored_runs(run):
        outcomes.append(given)
        total = loss(given)
        for depth in range(len(made) + 1):
            path = tuple(made[:depth])
            best[path] = min(best.get(path, total), total)
            if depth < len(made):
                assert scores.setdefault(path, seen[depth]) == seen[depth]
    for path, each in scores.items():
        for at, score in enumerate(each):
            assert best[(*path, at)] - best[path] == score - min(each), (path, at)
    return outcomes
