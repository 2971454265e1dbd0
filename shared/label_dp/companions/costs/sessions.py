"""The cost of steps on slices of a batch, by the bound that an answer names, and of an interval point.

All of it is exact and rounded up (`slices`); nothing here is drawn or searched. The writer of a charge and its readers
compute the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from label_dp.companions.costs import slices
from label_dp.errors import InvalidEpsilon, InvalidInput

BASE = 128  # a domain of this many points needs no recursion, and no δ
LEAST_POINTS = 4  # of a recursion: two pairs
LARGEST_EPSILON = 64
RANKS, SLICES = "ranks", "slices"  # the two ways of finding an interval point


@dataclass(frozen=True)
class SessionBound:
    """Bound with its parameters: its own δ, its numbers ρ, the mean noise of slices (0: none), and n examples."""

    bound: str
    slack: Fraction
    rho: Sequence[int]
    slice_noise: int
    n: int

    def cost(self, step: slices.Step, k: int) -> slices.Cost:
        """Compute the cost of k equal steps. Raises InvalidInput."""
        noise = slices.SliceNoise(self.slice_noise) if self.slice_noise else None
        if self.bound not in slices.BOUNDS or self.slack >= 1 or (self.bound != slices.COMPOSITION and not self.slack):
            raise InvalidInput("This bound is unknown, or needs a δ below 1.")
        if self.bound in (slices.COMPOSITION, slices.ADVANCED) and self.rho:
            raise InvalidInput("Only the bound of noisy slices takes numbers ρ.")
        if self.bound == slices.COMPOSITION:
            return slices.alike(step, k)
        if self.bound == slices.ADVANCED:
            return slices.advanced_alike(step, k, self.slack + k * step.delta, self.slack)
        bound = None if noise is None else slices.noisy_bound(step, k, noise, self.slack, self.n, self.rho)
        if bound is None:
            raise InvalidInput("The bound of noisy slices says nothing here.")
        return bound


def interval_cost(size: int, n: int, epsilon: Fraction, delta: Fraction, *, by_ranks: bool) -> slices.Cost:
    """Compute the cost of an interval point among `size` values, from n examples, at ε and δ. Raises InvalidEpsilon,
    InvalidInput.

    δ is 0 exactly if no recursion needs one: by ranks, and in small domains. The steps of the recursion are in uniform
    order, so that the largest counts.
    """
    recursive = not by_ranks and 1 << (size - 1).bit_length() > BASE
    if not 0 < epsilon <= LARGEST_EPSILON or not 0 <= delta < 1 or recursive != (delta > 0):
        raise InvalidEpsilon("An interval point costs an ε of at most 64, and a δ where it goes by recursion.")
    if n < (LEAST_POINTS if recursive else 1):
        raise InvalidInput("There are too few points for slices: take more, or ranks.")
    return slices.Cost(epsilon, delta)


def training_step(epsilon: Fraction, shuffled: bool) -> slices.Step:
    """Build a noisy gradient step of cost ε when a clipped gradient is replaced, and ε/2 when one is added or
    removed."""
    return slices.Step(epsilon, shuffled=shuffled, added=epsilon / 2)


def rho_texts(rho: Sequence[int]) -> list[str]:
    """Format ρ as documents list them."""
    return [str(number) for number in rho]
