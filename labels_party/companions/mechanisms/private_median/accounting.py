"""Plans of slices: the ρ of the bound of noisy slices, and the largest ε of a step that a total pays for.

The search is in floats; `label_dp.companions.costs.slices` proves its result in whole numbers. A poor search makes a
bound larger, never wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from label_dp.companions.costs.slices import MOST_RHO, RHO_BITS, Cost, SliceNoise, Step, alike, noisy_bound
from label_dp.errors import InvalidEpsilon
from label_dp.privacy import Epsilon

GRID = 96  # values of ρ tried
STEPS = 30  # of a bisection


@lru_cache(maxsize=256)
def noisy_slices(step: Step, k: int, noise: SliceNoise, delta: Fraction, n: int) -> Cost | None:
    """Compute `noisy_bound` by the ρ of `noisy_path`; None if there are none, or the bound is vacuous."""
    rho = noisy_path(step, k, noise, delta)
    return noisy_bound(step, k, noise, delta, n, rho) if rho else None


@lru_cache(maxsize=256)
def noisy_path(step: Step, k: int, noise: SliceNoise, delta: Fraction) -> tuple[int, ...]:
    """Search for nearly the best ρ for `noisy_bound`, in units of 2⁻⁴⁰; none if composition is cheaper."""
    added = step.epsilon if step.added is None else step.added
    most = float(alike(step, k).epsilon)
    path = _search(float(step.epsilon), float(added), float(noise.alpha), 0.9 * float(delta), most)
    return tuple(math.ceil(math.exp(guess) * (1 << RHO_BITS)) for guess in path or () if len(path or ()) <= MOST_RHO)


def largest_epsilon(cost_of: Callable[[Fraction], Cost], total: Fraction) -> Fraction:
    """Find nearly the largest ε of a step, in whole nano-ε, for which `cost_of` is at most `total`, by bisection.

    Raises InvalidEpsilon.
    """
    low, high = Fraction(0), Epsilon.round_down(min(total, Fraction(64))).fraction
    if cost_of(high).epsilon <= total:
        return high
    for _ in range(STEPS):
        middle = Epsilon.round_down((low + high) / 2).fraction
        if middle == low:
            break
        low, high = (middle, high) if cost_of(middle).epsilon <= total else (low, middle)
    if not low:
        raise InvalidEpsilon("ε is too small for so many steps.")
    return low


def _search(epsilon: float, added: float, alpha: float, delta: float, most: float) -> list[float] | None:
    """Search, in floats, logarithms of a rising path ρ_0, …, ρ_h whose γ multiply to at most δ, for nearly the least
    ρ_h.

    Returns None if none is below `most`, the cost of composition.
    """
    start, end = max(0.0, added + math.log(alpha)), most - added + math.log(alpha)
    if delta <= 0 or end <= start:
        return None
    path = None
    for _ in range(3):  # again on the part of the grid that is needed
        shortest = _shortest(epsilon, added, alpha, math.log(delta), np.linspace(start, end, GRID))
        if shortest is None:
            break
        path, end = shortest, shortest[-1]
    return path


def _shortest(
    epsilon: float, added: float, alpha: float, log_delta: float, grid: npt.NDArray[np.float64]
) -> list[float] | None:
    before, after = np.meshgrid(np.append(grid, -np.inf), grid, indexing="ij")  # the last row: none before, ρ = 0
    x = np.exp(before + epsilon - after)
    y = np.exp(added - after)
    left, power, gamma = np.ones_like(x), 1.0, np.zeros_like(x)
    while power > 1e-9 * (1.0 - alpha):
        gamma += (1.0 - alpha) * power * left
        left = 1.0 - np.clip((1.0 - x * left) / (y * alpha), 0.0, 1.0)
        power *= alpha
        if not left[x < 1.0].any():
            break
    gamma = np.where(x >= 1.0, 1.0, np.minimum(gamma + power * left, 1.0))
    cost = np.log(np.maximum(gamma, 1e-300))
    best, came = cost[GRID].copy(), np.full(GRID, GRID)
    for i in range(GRID):
        through = best[:i] + cost[:i, i]
        if i and through.min() < best[i]:
            best[i], came[i] = through.min(), int(through.argmin())
        if best[i] <= log_delta:
            path = [i]
            while came[path[-1]] != GRID:
                path.append(int(came[path[-1]]))
            return [float(grid[at]) for at in reversed(path)]
    return None
