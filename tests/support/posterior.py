"""What somebody who sees every message can conclude about one label, in exact arithmetic and from manifests alone.

The attacker compares two label vectors that differ in one example, knows all other labels, and even sees the noisy
counts behind a published prior, of which the receiver gets only the projection. Nothing here asks the ledger or a
channel's own ε: likelihoods are integer weights, bounds a partial sum of the series of e^ε.
"""

from __future__ import annotations

import functools
import io
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from label_dp.channels.base import Channel, N
from label_dp.channels.exponential import ExponentialChannel
from label_dp.channels.knots import KnotsChannel
from label_dp.channels.noise import NoiseChannel
from label_dp.channels.one_bit import OneBitChannel
from label_dp.channels.rr import RRChannel
from label_dp.channels.subsets import SubsetChannel
from label_dp.channels.top_labels import TopLabelsChannel
from label_dp.documents.manifest import Manifest
from label_dp.documents.signing import MANIFEST_TYPE, VerifyingKey, open_envelope
from labels_party.mechanisms import prior as prior_module
from labels_party.mechanisms.entropy import LaplaceNoise
from labels_party.message.engine import DrawJob, LocalEngine


@functools.cache
def exp_below(exponent: Fraction) -> Fraction:
    """A partial sum of the series of e^x, x ≥ 0: a lower bound, independent of the library's."""
    total = term = Fraction(1)
    for i in range(1, 80):
        term = term * exponent / i
        total += term
    return total


def exact_row(channel: Channel, position: int) -> list[int]:
    """The weights of a label's outputs; all labels of a channel have the same sum."""
    if isinstance(channel, RRChannel):
        own = int(np.searchsorted(channel.boundaries, position, side="right")) - 1
        return [channel.A if j == own else channel.B for j in range(channel.d)] if channel.d > 1 else [N]
    if isinstance(channel, OneBitChannel):
        upper = int(channel.weights[position])
        return [N - upper, upper]
    if isinstance(channel, TopLabelsChannel):
        kept = channel.kept.tolist()
        if position in kept:
            return [channel.A if j == kept.index(position) else channel.B for j in range(channel.d)]
        whole, rest = divmod(N, channel.d)
        return [whole + (j < rest) for j in range(channel.d)]
    if isinstance(channel, SubsetChannel):
        return subset_row(channel, position)
    if isinstance(channel, KnotsChannel):
        places = channel.lower, channel.upper, channel.upper_chance
        low, high, chance = (int(of[position]) for of in places)
        return _mixed(channel.weights[low].tolist(), channel.weights[high].tolist(), chance)
    if isinstance(channel, NoiseChannel | ExponentialChannel):
        low, chance = (int(of[position]) for of in channel.positions)
        return _mixed(_point(channel, low), _point(channel, min(low + 1, channel.cells)), chance)
    raise TypeError(type(channel).__name__)


def subset_order(channel: SubsetChannel, position: int) -> tuple[list[int], list[int]]:
    """The subsets with and without a label: number s·t + b, sorted by the block b and the label's place in it."""
    t, k = len(channel.blocks), channel.k
    pairs = [(b, x, (position - x) % k * t + b) for b in range(t) for x in range(k)]
    with_it = [o for b, x, o in pairs if x in channel.blocks[b].tolist()]
    return with_it, [o for b, x, o in pairs if x not in channel.blocks[b].tolist()]


def subset_row(channel: SubsetChannel, position: int) -> list[int]:
    """The weights of one label: what A and B leave of 2⁶⁴ goes to the first subsets without it, one each."""
    with_it, without = subset_order(channel, position)
    left, row = N - len(with_it) * channel.A - len(without) * channel.B, [channel.A] * channel.m
    for at, output in enumerate(without):
        row[output] = channel.B + (at < left)
    return row


def _mixed(one: list[int], other: list[int], chance: int) -> list[int]:
    return [(N - chance) * a + chance * b for a, b in zip(one, other, strict=True)]


def _point(channel: NoiseChannel | ExponentialChannel, point: int) -> list[int]:
    if isinstance(channel, ExponentialChannel):
        return [int(w) for w in channel.weights[point]]
    weights, reach = channel.weights.tolist(), channel.reach
    inside = [weights[abs(j - reach - point)] for j in range(1, channel.m - 1)]
    return [sum(weights[reach + point :]), *inside, sum(weights[channel.cells + reach - point :])]


@dataclass(frozen=True)
class NoisyCounts:
    """The noise of one estimated prior, t ∝ e^(−|t|/scale) on every cell."""

    scale: Fraction
    noise: list[int]
    cells: list[int]

    def _cell(self, position: int) -> int:
        return int(np.searchsorted(self.cells, position, side="right")) - 1

    def exponent(self, y: int, other: int) -> Fraction:
        """ln of how much likelier the counts are under y, which they were made with, than under the other label."""
        a, b = self._cell(y), self._cell(other)
        if a == b:
            return Fraction(0)
        lost, won = self.noise[a], self.noise[b]  # under the other label a count is one less, another one more
        return (abs(lost + 1) + abs(won - 1) - abs(lost) - abs(won)) / self.scale

    def worst(self, y: int, other: int) -> Fraction:
        return Fraction(0) if self._cell(y) == self._cell(other) else 2 / self.scale


@contextmanager
def seen_counts() -> Iterator[dict[str, NoisyCounts]]:
    """By release, the noise in its estimated prior: the attacker looks over the shoulder of the estimate."""
    found: dict[str, NoisyCounts] = {}
    drawn: list[tuple[Fraction, list[int]]] = []
    draw: Callable[..., Any] = prior_module.discrete_laplace
    estimate = LocalEngine()._prior

    def watched_draw(asked: LaplaceNoise, n: int) -> Any:
        noise = draw(asked, n)
        drawn.append((asked.scale, noise.tolist()))
        return noise

    def watched_estimate(job: DrawJob) -> Any:
        drawn.clear()
        prior = estimate(job)
        for scale, noise in drawn:
            assert job.plan.cells is not None
            found[job.folder.parent.name] = NoisyCounts(scale, noise, job.plan.cells.tolist())
        return prior

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prior_module, "discrete_laplace", watched_draw)
        patch.setattr(LocalEngine, "_prior", staticmethod(watched_estimate))
        yield found


@dataclass(frozen=True)
class Told:
    """One published message, as far as it is about the chosen example."""

    manifest: Manifest
    prior: bytes | None  # float64[k]
    present: bool  # whether it has a row of the example
    odds: Fraction  # P[what was drawn | y] / P[what was drawn | other]
    worst: Fraction  # the largest such ratio of any output, in either direction

    @property
    def charge(self) -> Fraction:
        return self.manifest.epsilon.total.fraction


def told(
    envelope: bytes, message: bytes, prior: bytes | None, key: VerifyingKey, example: str, y: int, other: int
) -> Told:
    """Read what a receiver got. The signature is verified, the rest trusted: the attacker is the receiver."""
    manifest = Manifest.from_payload(open_envelope(envelope, key, MANIFEST_TYPE, max_bytes=1 << 22))
    table = pq.read_table(io.BytesIO(message))
    outputs = dict(zip(table["example_id"].to_pylist(), table["bin"].to_pylist(), strict=True))
    values = None if prior is None else pq.read_table(io.BytesIO(prior))["probability"].to_numpy().tobytes()
    channel = manifest.read_channel()
    one, two = exact_row(channel, y), exact_row(channel, other)
    most, least = 1, 1
    for a, b in zip(one, two, strict=True):
        if max(a, b) * least > most * min(a, b):
            most, least = max(a, b), min(a, b)
    drawn = outputs.get(example)
    odds = Fraction(1) if drawn is None else Fraction(one[drawn], two[drawn])
    return Told(manifest, values, drawn is not None, odds, Fraction(most, least))


@dataclass
class Posterior:
    """All that is known of one example: odds times e^exponent, as it came out and at worst."""

    y: int
    other: int
    odds: Fraction = Fraction(1)
    exponent: Fraction = Fraction(0)
    worst_odds: Fraction = Fraction(1)
    worst_exponent: Fraction = Fraction(0)

    def learn(self, message: Told, counts: NoisyCounts | None) -> None:
        """`counts`: those behind the prior that was estimated for this message."""
        self.odds *= message.odds
        self.worst_odds *= message.worst
        if counts is not None:
            self.exponent += counts.exponent(self.y, self.other)
            self.worst_exponent += counts.worst(self.y, self.other)

    def gained(self) -> float:
        """|ln| of the odds as they came out."""
        return abs(math.log(self.odds.numerator) - math.log(self.odds.denominator) + float(self.exponent))

    def within(self, epsilon: Fraction) -> bool:
        """Whether all ratios, drawn and worst, in both directions, are at most e^ε: decided in integers."""
        sides = (self.odds, self.exponent), (1 / self.odds, -self.exponent), (self.worst_odds, self.worst_exponent)
        return all(x <= epsilon and odds <= exp_below(epsilon - x) for odds, x in sides)
