"""Reorder–Slice–Compute: a data set that private algorithms use up slice by slice (Cohen, Lyu, Nelson, Sarlós & Stemmer
2023; "Differentially private median and more").

A step chooses an ordering of the remaining elements, a size and an algorithm, all of which may depend on earlier
outputs and on nothing else; takes the first elements, shows the algorithm's output on them, and drops them. The total
cost of all steps is fixed beforehand by a `SessionPlan`, from public facts (`label_dp.companions.costs.slices` has the
proof). A session that departs from its plan is refused before it reads another element.

Neighbours differ in one element replaced, and n is public. Two requirements of the proof are met here, not left to
algorithms: they get the elements of a slice in a fresh uniform order, so that neighbouring slices differ in one place;
and if sizes are noisy, an algorithm that is private for a fixed number of elements gets exactly that many, a uniform
subset of its slice, padded with `blank` if the data run out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from label_dp.companions.costs import slices
from label_dp.errors import InvalidEpsilon, InvalidInput, InvalidMechanism
from labels_party.companions.mechanisms.private_median.accounting import noisy_path, noisy_slices
from labels_party.mechanisms.entropy import Keystream, Uint64Source

Rows = npt.NDArray[Any]
Keys = npt.NDArray[np.int64]
Order = Callable[[Rows], Keys]
T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")

BLOCK = 4096  # words at a time
FREE = slices.Step(Fraction(0))


class Algorithm(Protocol[T_co]):
    """Algorithm; `step` is its cost, which its author promises and proves in its docstring."""

    @property
    def step(self) -> slices.Step: ...

    def __call__(self, rows: Rows) -> T_co: ...


@dataclass(frozen=True)
class SessionPlan:
    """Steps of a session in order, none of which may cost more than planned, and their total cost.

    `noise` None: slices of exactly the requested size. With noise, `delta` is the δ that the bounds `noisy_slices` and
    `advanced` may spend beyond the steps' own. The cheapest bound that holds is charged; `rule` is its name.
    """

    steps: tuple[slices.Step, ...]
    n: int
    noise: slices.SliceNoise | None = None
    delta: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if not self.steps or self.n < 1:
            raise InvalidInput("A session needs at least one step and one element.")
        if not 0 <= self.delta < 1:
            raise InvalidEpsilon("δ lies between 0 and 1.")

    @property
    def bounds(self) -> dict[str, slices.Cost]:
        """Every bound that is proved for this plan, by name."""
        costs = {slices.COMPOSITION: slices.in_order(self.steps)}
        if self.delta > 0:
            costs[slices.ADVANCED] = slices.advanced(self.steps, self.delta)
            if self.noise is not None:
                noisy = noisy_slices(self._worst, len(self.steps), self.noise, self.delta, self.n)
                if noisy is not None:
                    costs[slices.NOISY] = noisy
        return costs

    @property
    def _worst(self) -> slices.Step:
        added = max(s.epsilon if s.added is None else s.added for s in self.steps)
        return slices.Step(max(s.epsilon for s in self.steps), max(s.delta for s in self.steps), added=added)

    @property
    def rho(self) -> tuple[int, ...]:
        """Numbers ρ that prove the charge, if it is the bound of noisy slices."""
        if self.noise is None or self.rule != slices.NOISY:
            return ()
        return noisy_path(self._worst, len(self.steps), self.noise, self.delta)

    @property
    def rule(self) -> str:
        bounds = self.bounds
        return min(bounds, key=lambda name: (bounds[name].epsilon, bounds[name].delta))

    @property
    def cost(self) -> slices.Cost:
        return self.bounds[self.rule]

    @property
    def most_noise(self) -> int:
        """Largest excess of a slice over its size."""
        return 0 if self.noise is None else slices.cut_off(self.noise, self.delta, len(self.steps), self.n)


class Session:
    """Remaining elements and remaining steps. Not for several threads."""

    def __init__(
        self, rows: Rows, plan: SessionPlan, *, blank: Sequence[int] | int = 0, source: Uint64Source | None = None
    ) -> None:
        """Start with `rows`: n elements, [n] or [n, width] of whole numbers. Raises InvalidInput."""
        if len(rows) != plan.n or not np.issubdtype(rows.dtype, np.integer):
            raise InvalidInput("A session takes as many elements as planned, in whole numbers.")
        self.plan, self.source = plan, Keystream() if source is None else source
        self._rows, self._blank, self._taken = rows, np.asarray(blank, rows.dtype), 0

    def step(self, algorithm: Algorithm[T], size: int, order: Order | None = None) -> T:
        """Run `algorithm` on the first about `size` elements by `order` (smallest key first; None: uniform).

        `order` gives every element a key that depends on that element and on public values alone; of equal keys the
        element that came earlier goes first. Raises InvalidMechanism if the step is not the planned one.
        """
        if self._taken >= len(self.plan.steps):
            raise InvalidMechanism("All steps that were planned and paid for have been taken.")
        planned, actual = self.plan.steps[self._taken], algorithm.step
        if actual.epsilon > planned.epsilon or actual.delta > planned.delta or planned.shuffled != (order is None):
            raise InvalidMechanism("This step costs more than planned, or orders its elements otherwise.")
        added = actual.epsilon if actual.added is None else actual.added
        if added > (planned.epsilon if planned.added is None else planned.added):
            raise InvalidMechanism("This step costs more than planned where an element is added.")
        if size < 0:
            raise InvalidInput("The size of a slice must not be negative.")
        self._taken += 1
        many = size + (0 if self.plan.noise is None else geometric(self.plan.noise, self.plan.most_noise, self.source))
        if order is None:
            first = permutation(len(self._rows), self.source)
        else:
            keys = order(self._rows)
            if keys.shape != (len(self._rows),):
                raise InvalidInput("An order gives one key for each element.")
            first = np.argsort(keys, kind="stable")
        inside, rest = self._rows[first[:many]], np.sort(first[many:])
        self._rows = self._rows[rest]
        inside = inside[permutation(len(inside), self.source)]
        if self.plan.noise is not None and actual.added is None:
            inside = self._exactly(inside, size)
        return algorithm(inside)

    def _exactly(self, rows: Rows, size: int) -> Rows:
        """Return the first `size` of rows in uniform order, padded with blanks."""
        missing = max(size - len(rows), 0)
        if not missing:
            return rows[:size]
        blanks = np.broadcast_to(self._blank, (missing, *rows.shape[1:]))
        filled = np.concatenate([rows, blanks])
        return np.asarray(filled[permutation(size, self.source)])


@dataclass(frozen=True)
class Drop:
    """Algorithm that shows nothing and costs nothing, for elements that the next steps must not see."""

    step: slices.Step = FREE

    def __call__(self, rows: Rows) -> None:
        return None


def permutation(n: int, source: Uint64Source) -> npt.NDArray[np.int64]:
    """Draw a uniform order of 0 … n − 1, exact for ideal bits: redrawn if two of its keys are equal. int64[n]."""
    while True:
        keys = source.uint64(n)
        order = np.argsort(keys, kind="stable").astype(np.int64)
        if not np.any(np.diff(keys[order]) == 0):
            return order


def geometric(noise: slices.SliceNoise, most: int, source: Uint64Source) -> int:
    """Draw J with P[J ≥ j] = αʲ for j ≤ `most`, its maximum. Always takes `most` words, whatever J is."""
    stop = most
    for start in reversed(range(0, most, BLOCK)):
        words = source.uint64(min(BLOCK, most - start))
        stops = np.flatnonzero(words < np.uint64(noise.stop))
        stop = start + int(stops[0]) if stops.size else stop
    return stop
