"""Every transcript of a small Reorder–Slice–Compute session with its probability, by enumeration; no sampling."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from label_dp.companions.costs.slices import SliceNoise

Element = tuple[int, str]
History = tuple[int, ...]
Transcripts = Mapping[History, float]


@dataclass(frozen=True)
class Analyst:
    """Whoever asks: an order, a size and a bit for every history, as adversarial as the test likes.

    A step shows the bit of its slice by randomized response of `epsilon`, which is ε-DP whatever the bit is.
    """

    epsilon: float
    steps: int
    size: Callable[[History], int]
    order: Callable[[History, Element], tuple[int, ...]]
    bit: Callable[[History, tuple[Element, ...]], int]


def transcripts(data: tuple[Element, ...], analyst: Analyst, noise: SliceNoise | None) -> Transcripts:
    """P[v] for all v in {0, 1}^steps; `noise` None: slices of exactly the size asked for."""
    kept = 1.0 / (1.0 + math.exp(-analyst.epsilon))
    known: dict[tuple[History, tuple[Element, ...]], dict[History, float]] = {}

    def after(history: History, left: tuple[Element, ...]) -> dict[History, float]:
        if len(history) == analyst.steps:
            return {history: 1.0}
        if (history, left) not in known:
            ordered = sorted(left, key=lambda element: (*analyst.order(history, element), element))
            found: dict[History, float] = {}
            for many, chance in sizes(analyst.size(history), len(left), noise).items():
                bit = analyst.bit(history, tuple(ordered[:many]))
                for shown in (0, 1):
                    each = chance * (kept if shown == bit else 1.0 - kept)
                    for v, p in after((*history, shown), tuple(sorted(ordered[many:]))).items():
                        found[v] = found.get(v, 0.0) + each * p
            known[history, left] = found
        return known[history, left]

    return after((), tuple(sorted(data)))


def sizes(asked: int, left: int, noise: SliceNoise | None) -> dict[int, float]:
    if noise is None:
        return {min(asked, left): 1.0}
    alpha, found = float(noise.alpha), {}
    for many in range(asked, max(asked, left) + 1):
        last = many == max(asked, left)
        found[min(many, left)] = alpha ** (many - asked) * (1.0 if last else 1.0 - alpha)
    return found


def excess(one: Transcripts, other: Transcripts, epsilon: float) -> float:
    """The least δ for which one ≤ e^ε·other + δ."""
    return math.fsum(max(0.0, p - math.exp(epsilon) * other.get(v, 0.0)) for v, p in one.items())
