"""The whole matrix of any channel of the catalogue, in integers, and which word of randomness gives which output.

Weights are compared with a lower bound of e^ε that is computed here; a channel's own ε is never asked. Labels between
two lattice points or knots have mixtures of the rows of both, which no ratio of theirs exceeds, so rows of all points
cover all labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from label_dp.channels.base import Channel, N, WeightedChannel
from label_dp.channels.exponential import ExponentialChannel
from label_dp.channels.knots import KnotsChannel
from label_dp.channels.noise import NoiseChannel
from label_dp.channels.one_bit import OneBitChannel
from label_dp.channels.rr import RRChannel
from label_dp.channels.subsets import SubsetChannel
from label_dp.channels.top_labels import TopLabelsChannel
from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.mechanisms import auto, catalogue, sampling
from tests.support.posterior import exp_below, subset_order, subset_row

UInt64Array = npt.NDArray[np.uint64]
Options = Mapping[str, Any]
LINEAR_PROGRAMS = frozenset({"unbiased", "balanced"})  # seconds each on many labels
BLOCK = 1 << 22  # weights at once
LARGE = 1 << 24  # weights of noise that are not written out
WORDS = 1 << 13  # no more than any sampler takes at once

VARIANTS: dict[str, list[Options]] = {
    "rr-on-bins": [{}],
    "one-bit": [{}, {"clip": "auto"}, {"clip": ("1.25", "1e9")}],
    "unbiased": [{}],
    "balanced": [{}],
    "rr": [{}],
    "rr-with-prior": [{}],
    "subset-selection": [{}],
    "laplace": [{}, {"unclipped": True}],
    "discrete-laplace": [{}, {"unclipped": True}],
    "staircase": [{}, {"unclipped": True}],
    "discrete-staircase": [{}, {"unclipped": True}],
    "exponential": [{}, {"tight": True}],
}
CASES = [(name, options) for name, variants in VARIANTS.items() for options in variants]


def uncovered() -> list[str]:
    """What the catalogue, `auto` or the samplers have and VARIANTS or `rows` here do not."""
    missing = sorted(catalogue.MECHANISMS.keys() ^ VARIANTS.keys())
    for name in catalogue.MECHANISMS.keys() & VARIANTS.keys():
        tried = {option for options in VARIANTS[name] for option in options}
        missing += [f"{name}: {option}" for option in sorted(catalogue.MECHANISMS[name].options ^ tried)]
    missing += [f"auto: {c.called}" for c in auto.CANDIDATES if c.options not in VARIANTS.get(c.name, [])]
    kinds = RRChannel, OneBitChannel, TopLabelsChannel, SubsetChannel, KnotsChannel, NoiseChannel, ExponentialChannel
    return missing + [f"sampler: {kind.__name__}" for kind in sampling.SAMPLERS if not issubclass(kind, kinds)]


def design(
    name: str, domain: Domain, epsilon: Epsilon, options: Options, prior: npt.NDArray[np.float64] | None = None
) -> Channel:
    """By default under a skewed prior, which several bins, kept labels and a clip away from the ends come from."""
    if prior is None:
        prior = np.exp(-6.0 * np.arange(domain.k) / domain.k)
    return catalogue.MECHANISMS[name].design(domain, prior / prior.sum(), epsilon, "squared", options)


# --- rows ----------------------------------------------------------------------------------------------------


def lattice_rows(cells: int, reach: int, weights: list[int]) -> list[list[int]]:
    """The rows of some lattice points, the ends among them: noise of the given weights added, clipped at the reach."""
    noise, last = weights[:0:-1] + weights, len(weights) - 1
    rows = []
    for point in sorted({*range(0, cells + 1, max(1, cells // 7)), 1, cells}):
        to_bottom, to_top = point + reach, cells + reach - point
        inside = noise[last - to_bottom + 1 : last + to_top]
        rows.append([sum(noise[: last - to_bottom + 1]), *inside, sum(noise[last + to_top :])])
    return rows


def knot_rows(channel: KnotsChannel) -> list[list[int]]:
    """The rows of all labels, out of 2¹²⁸: a mixture of the rows of the knots beside them."""
    weights = channel.weights.tolist()
    places = zip(channel.lower.tolist(), channel.upper.tolist(), channel.upper_chance.tolist(), strict=True)
    return [
        [(N - chance) * a + chance * b for a, b in zip(weights[lower], weights[upper], strict=True)]
        for lower, upper, chance in places
    ]


def point_count(channel: Channel) -> int:
    """How many rows of its own a channel has: one a label, knot or lattice point."""
    if isinstance(channel, NoiseChannel | ExponentialChannel):
        return channel.cells + 1
    return int(channel.knots.size) if isinstance(channel, KnotsChannel) else channel.k


def rows(channel: Channel, points: npt.NDArray[np.int64]) -> UInt64Array:
    """uint64[points, m]: weights out of 2⁶⁴ from a channel's parameters, m ≥ 2."""
    columns = np.arange(channel.m)[None, :]
    if isinstance(channel, RRChannel):
        own = np.searchsorted(channel.boundaries, points, side="right")[:, None] - 1
        return np.where(columns == own, np.uint64(channel.A), np.uint64(channel.B))
    if isinstance(channel, OneBitChannel):
        upper = channel.weights[points]
        return np.stack([np.uint64(N - 1) - upper + np.uint64(1), upper], axis=1)
    if isinstance(channel, TopLabelsChannel):
        place = np.searchsorted(channel.kept, points).clip(0, channel.d - 1)
        kept, (whole, rest) = channel.kept[place] == points, divmod(N, channel.d)
        response = np.where(columns == place[:, None], np.uint64(channel.A), np.uint64(channel.B))
        return np.where(kept[:, None], response, np.uint64(whole) + (columns < rest).astype(np.uint64))
    if isinstance(channel, SubsetChannel):
        return np.array([subset_row(channel, point) for point in points.tolist()], np.uint64)
    if isinstance(channel, KnotsChannel | ExponentialChannel):
        return channel.weights[points]
    assert isinstance(channel, NoiseChannel)
    found = channel.weights[np.abs(columns - channel.reach - points[:, None])]
    tails = np.cumsum(channel.weights[::-1])[::-1]
    found[:, 0] = tails[points + channel.reach]
    found[:, -1] = tails[channel.cells + channel.reach - points]
    return np.asarray(found, np.uint64)


def blocks(channel: Channel) -> Iterator[UInt64Array]:
    count, step = point_count(channel), max(1, BLOCK // channel.m)
    for start in range(0, count, step):
        yield rows(channel, np.arange(start, min(start + step, count)))


def sums_to_whole(block: UInt64Array) -> bool:
    """Whether every row sums to 2⁶⁴ exactly, by halves of 32 bits."""
    high, low = (block >> np.uint64(32)).sum(axis=1), (block & np.uint64(0xFFFFFFFF)).sum(axis=1)
    return all((h << 32) + w == N for h, w in zip(high.tolist(), low.tolist(), strict=True))


def columns(channel: Channel) -> list[tuple[int, int]]:
    """(largest, smallest weight) of every output over all points, each row checked to sum to 2⁶⁴."""
    if channel.m == 1:
        return [(N, N)]
    if isinstance(channel, NoiseChannel) and channel.m * (channel.cells + 1) > LARGE:
        return window_columns(channel)
    largest, smallest = np.zeros(channel.m, np.uint64), np.full(channel.m, N - 1, np.uint64)
    for block in blocks(channel):
        assert sums_to_whole(block)
        np.maximum(largest, block.max(axis=0), out=largest)
        np.minimum(smallest, block.min(axis=0), out=smallest)
    return list(zip(largest.tolist(), smallest.tolist(), strict=True))


def window_columns(channel: NoiseChannel) -> list[tuple[int, int]]:
    """`columns` of noise, without its matrix: where weights fall with distance, as is checked, the nearest point has
    the largest and the farthest the smallest. All rows hold the same weights, so some are summed."""
    w, cells, reach = channel.weights, channel.cells, channel.reach
    assert np.all(w[1:-1] <= w[:-2])
    assert sums_to_whole(rows(channel, np.array([0, 1, cells // 2, cells])))
    at = np.arange(channel.m) - reach
    nearest, farthest = np.maximum(np.maximum(-at, at - cells), 0), np.maximum(cells - at, at)
    largest, smallest = w[nearest], w[farthest.clip(0, w.size - 1)]
    tails = np.cumsum(w[::-1])[::-1]
    largest[[0, -1]], smallest[[0, -1]] = tails[reach], tails[reach + cells]
    return list(zip(largest.tolist(), smallest.tolist(), strict=True))


def columns_of(weights: list[list[int]]) -> list[tuple[int, int]]:
    return [(max(column), min(column)) for column in zip(*weights, strict=True)]


def violations(pairs: list[tuple[int, int]], epsilon: Epsilon) -> int:
    """How many outputs have largest weight > e^ε·smallest weight, in integers."""
    most, unit = exp_below(epsilon.fraction).as_integer_ratio()
    return sum(largest * unit > most * smallest for largest, smallest in pairs)


def worst_odds(pairs: Iterable[tuple[int, int]]) -> Fraction:
    """The largest ratio, by integers: fractions would be reduced to be compared."""
    most, least = 0, 1
    for largest, smallest in pairs:
        if largest * least > most * smallest:
            most, least = largest, smallest
    return Fraction(most, least)


def check_matrix(channel: Channel, epsilon: Epsilon) -> int:
    """Every pair of labels and every output: no ratio above e^ε, and what the channel says of itself is so. Returns
    the number of outputs."""
    pairs = columns(channel)
    assert violations(pairs, epsilon) == 0
    assert isinstance(channel, WeightedChannel)
    assert channel.worst_case_odds == worst_odds(pairs)
    assert channel.satisfies(epsilon)
    assert channel.epsilon <= epsilon
    if isinstance(channel, KnotsChannel) and channel.k * channel.m <= 1 << 14:
        mixed = knot_rows(channel)
        assert {sum(row) for row in mixed} == {N * N}
        assert violations(columns_of(mixed), epsilon) == 0
    return channel.m


# --- words ---------------------------------------------------------------------------------------------------


class Words:
    """A source that hands out given words, one array for each call."""

    def __init__(self, *calls: Any) -> None:
        self.calls = [np.array(words, dtype=np.uint64) for words in calls]

    def uint64(self, n: int) -> UInt64Array:
        words = self.calls.pop(0)
        assert words.size == n
        return words


def drawn(channel: Channel, index: Any, *calls: Any) -> npt.NDArray[np.int64]:
    """What `sample` makes of the label positions `index` if its keystream gives these words."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "Keystream", lambda: Words(*calls))
        return sampling.sample(channel, np.asarray(index, np.int64)).astype(np.int64)


def _ends(row: list[int], order: list[int]) -> list[tuple[int, int]]:
    """(word, output) at both ends of every output's share of the words, shares laid side by side in `order`."""
    found, start = [], 0
    for output in order:
        found += [(start, output), (start + row[output] - 1, output)]
        start += row[output]
    assert start == N
    return found


def _edges(channel: Channel, position: int) -> list[tuple[list[int], int]]:
    """(words, output) at the ends of every share, for one label; shares are intervals of words."""
    row, rising = [int(w) for w in rows(channel, np.array([position]))[0]], list(range(channel.m))
    if isinstance(channel, OneBitChannel):
        return [([word], output) for word, output in _ends(row, [1, 0])]
    if isinstance(channel, TopLabelsChannel):
        if position not in channel.kept.tolist():
            return [([N // 3, word], output) for word, output in _ends(row, rising)]
        own = channel.kept.tolist().index(position)
        return [([word, N // 3], out) for word, out in _ends(row, [own, *rising[:own], *rising[own + 1 :]])]
    if isinstance(channel, SubsetChannel):
        with_it, without = subset_order(channel, position)
        return [([word], output) for word, output in _ends(row, [*with_it, *without])]
    assert isinstance(channel, RRChannel)
    own = int(np.searchsorted(channel.boundaries, position, side="right")) - 1
    return [([word], output) for word, output in _ends(row, [own, *rising[:own], *rising[own + 1 :]])]


def wrong_words(channel: Channel, position: int) -> int:
    """How many ends of shares do not give the output that the weights of this label say: 0 where the sampler turns
    exactly W words into every output of weight W. By an alias table: how many outputs do not have W words."""
    if channel.m == 1:
        return int(drawn(channel, [position] * 3).any())
    if isinstance(channel, NoiseChannel | ExponentialChannel | KnotsChannel):
        return sum(_wrong_alias(channel, position, first, point) for first, point in _roundings(channel, position))
    edges, wrong = _edges(channel, position), 0
    for start in range(0, len(edges), WORDS):
        part = edges[start : start + WORDS]
        got = drawn(channel, np.full(len(part), position), *zip(*(words for words, _ in part), strict=True))
        wrong += int((got != np.array([output for _, output in part])).sum())
    return wrong


def _roundings(channel: NoiseChannel | ExponentialChannel | KnotsChannel, position: int) -> list[tuple[list[int], int]]:
    """(first word, if there is one; the lattice point or knot that it rounds this label to), at the ends of both."""
    if isinstance(channel, KnotsChannel):
        low, chance = int(channel.lower[position]), int(channel.upper_chance[position])
        whole = channel.knots.size == channel.k
    else:
        low, chance = (int(of[position]) for of in channel.positions)
        whole = channel.on_lattice
    if whole:
        return [([], low)]
    return [([word], low + (word < chance)) for word in sorted({0, max(chance, 1) - 1, chance, N - 1})]


def _wrong_alias(
    channel: NoiseChannel | ExponentialChannel | KnotsChannel, position: int, first: list[int], point: int
) -> int:
    """Words of one upper part give one output up to a limit and another one beyond: the limits are found by bisection
    with the sampler itself, and the words of each output counted."""
    bits = (2 * channel.weights.size - 2 if isinstance(channel, NoiseChannel) else channel.m - 1).bit_length()
    capacity, counts = N >> bits, [0] * channel.m
    for some in range(0, 1 << bits, WORDS):
        start = np.arange(some, min(some + WORDS, 1 << bits), dtype=np.uint64) * np.uint64(capacity)
        size = start.size

        def at(offset: UInt64Array, start: UInt64Array = start, size: int = size) -> npt.NDArray[np.int64]:
            return drawn(
                channel, np.full(size, position), *(np.full(size, w, np.uint64) for w in first), start + offset
            )

        least, most = np.zeros(size, np.uint64), np.full(size, capacity - 1, np.uint64)
        below, beyond = at(least), at(most)
        for _ in range(64 - bits):
            middle = least + (most - least + np.uint64(1)) // np.uint64(2)
            same = at(middle) == below
            least, most = (
                np.where(same, middle, least),
                np.where(same, most, np.maximum(middle, np.uint64(1)) - np.uint64(1)),
            )
        for own, one, other in zip(least.tolist(), below.tolist(), beyond.tolist(), strict=True):
            counts[one] += own + 1
            counts[other] += capacity - own - 1
    row = rows(channel, np.array([point]))[0].tolist()
    return sum(count != weight for count, weight in zip(counts, row, strict=True))
