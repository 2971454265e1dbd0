"""Exact audit of every mechanism: integer ratios against a rational lower bound of e^ε that is computed here.

No tolerance anywhere. Planted controls (a float probability, weights raised by one percent) must be detected by the
same audit, or a clean run would mean nothing.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from labels_party.mechanisms.catalogue import MECHANISMS
from labels_party.mechanisms.one_bit import sample_one_bit
from labels_party.mechanisms.randomized_response import rr_weights, sample_rr
from shared.channel import (
    AdditiveChannel,
    ExponentialChannel,
    KnotsChannel,
    N,
    NoiseChannel,
    OneBitChannel,
    RRChannel,
    TopLabelsChannel,
)
from shared.domain import Domain
from shared.privacy import Epsilon

EPSILONS = ["0.05", "0.1", "0.25", "0.5", "0.693147181", "1", "1.5", "2", "3", "4.605170186", "6", "8", "10"]
OUTPUTS = [2, 3, 5, 17, 64, 255, 256, 257, 1000, 4096]


def exp_below(epsilon: Epsilon) -> Fraction:
    """A partial sum of the series of e^ε: a lower bound, independent of the library's."""
    total = term = Fraction(1)
    for i in range(1, 80):
        term = term * epsilon.fraction / i
        total += term
    return total


def violations(columns: list[tuple[int, int]], epsilon: Epsilon) -> int:
    """How many outputs have largest weight > e^ε·smallest weight, in integers; `columns` lists (largest, smallest)."""
    bound = exp_below(epsilon)
    return sum(largest * bound.denominator > bound.numerator * smallest for largest, smallest in columns)


def columns_of(weights: list[list[int]]) -> list[tuple[int, int]]:
    return [(max(column), min(column)) for column in zip(*weights, strict=True)]


def lattice_rows(cells: int, reach: int, weights: list[int]) -> list[list[int]]:
    """The rows of some lattice points, the ends among them: noise of the given weights added, clipped at the reach."""
    noise, last = weights[:0:-1] + weights, len(weights) - 1
    rows = []
    for point in sorted({*range(0, cells + 1, max(1, cells // 7)), 1, cells}):
        to_bottom, to_top = point + reach, cells + reach - point
        inside = noise[last - to_bottom + 1 : last + to_top]
        rows.append([sum(noise[: last - to_bottom + 1]), *inside, sum(noise[last + to_top :])])
    return rows


def rows_of(channel: NoiseChannel) -> list[list[int]]:
    return lattice_rows(channel.cells, channel.reach, channel.weights.tolist())


def knot_rows(channel: KnotsChannel) -> list[list[int]]:
    """The rows of all labels, out of 2¹²⁸: a mixture of the rows of the knots beside them."""
    weights = channel.weights.tolist()
    places = zip(channel.lower.tolist(), channel.upper.tolist(), channel.upper_chance.tolist(), strict=True)
    return [
        [(N - chance) * a + chance * b for a, b in zip(weights[lower], weights[upper], strict=True)]
        for lower, upper, chance in places
    ]


def top_label_rows(channel: TopLabelsChannel) -> list[list[int]]:
    whole, rest = channel.uniform_weights
    others = [whole + (j < rest) for j in range(channel.d)]
    return [
        others if own == channel.d else [channel.A if j == own else channel.B for j in range(channel.d)]
        for own in channel.own.tolist()
    ]


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_randomized_response_up_to_4096_outputs(epsilon: str) -> None:
    eps = Epsilon.parse(epsilon)
    for d in OUTPUTS:
        A, B = rr_weights(eps, d)
        assert A + (d - 1) * B == N
        assert violations([(A, B)] * d, eps) == 0
        # no weight is wasted: one more unit on the own bin would break the bound or the sum
        assert violations([(A + (d - 1), B - 1)], eps) == 1


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", list(MECHANISMS))
def test_designed_channels_satisfy_their_epsilon(name: str, epsilon: str) -> None:
    eps = Epsilon.parse(epsilon)
    # a linear program of many labels takes a second
    domain = Domain.parse("0:24" if name in ("unbiased", "balanced") else "0:120")
    prior = np.exp(-6.0 * np.arange(domain.k) / domain.k)
    channel = MECHANISMS[name].design(domain, prior / prior.sum(), eps, "squared", {})
    assert channel.satisfies(eps)
    assert channel.epsilon <= eps
    if isinstance(channel, RRChannel):
        rows = [[channel.A if j == int(b) else channel.B for j in range(channel.d)] for b in channel.bins]
        assert all(sum(row) == N for row in rows)
        assert channel.d == 1 or violations(columns_of(rows), eps) == 0
    elif isinstance(channel, OneBitChannel):
        rows = [[N - int(w), int(w)] for w in channel.weights.tolist()]
        assert violations(columns_of(rows), eps) == 0
    elif isinstance(channel, NoiseChannel):
        rows = rows_of(channel)
        assert all(sum(row) == N for row in rows)
        assert violations(columns_of(rows), eps) == 0
        assert channel.worst_case_odds == max(Fraction(a, b) for a, b in columns_of(rows))
    elif isinstance(channel, ExponentialChannel):
        rows = channel.weights.tolist()
        assert {sum(row) for row in rows} == {N}
        assert violations(columns_of(rows), eps) == 0
    elif isinstance(channel, KnotsChannel):
        rows = knot_rows(channel)
        assert {sum(row) for row in rows} == {N * N}
        assert violations(columns_of(rows), eps) == 0
        assert channel.worst_case_odds == max(Fraction(a, b) for a, b in columns_of(rows))
    else:
        assert isinstance(channel, TopLabelsChannel)
        rows = top_label_rows(channel)
        assert {sum(row) for row in rows} == {N}
        assert violations(columns_of(rows), eps) == 0


@pytest.mark.parametrize("name", ["unbiased", "balanced"])
def test_labels_between_knots_are_mixtures_that_keep_epsilon(name: str) -> None:
    eps, domain, prior = Epsilon.parse("2"), Domain.parse("0:200"), np.full(201, 1 / 201)
    channel = MECHANISMS[name].design(domain, prior, eps, "squared", {})
    assert isinstance(channel, KnotsChannel)
    assert channel.knots.size < channel.k
    rows = knot_rows(channel)
    assert {sum(row) for row in rows} == {N * N}
    assert violations(columns_of(rows), eps) == 0
    # a control: rounding that overshoots the next knot is noticed
    at = [rows[int(knot)] for knot in channel.knots]
    beyond = [[2 * b - a for a, b in zip(one, two, strict=True)] for one, two in itertools.pairwise(at)]
    assert violations(columns_of([*rows, *beyond]), eps) > 0


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_likeliest_labels_up_to_4096_outputs(epsilon: str) -> None:
    eps = Epsilon.parse(epsilon)
    for d in (2, 3, 1000, 4096):
        A, B = rr_weights(eps, d)
        channel = TopLabelsChannel(domain=Domain.parse(f"0:{d}"), kept=np.arange(1, d + 1), A=A, B=B)
        whole, rest = channel.uniform_weights
        assert whole * d + rest == N
        assert violations([(max(A, whole + (rest > 0)), min(B, whole))], eps) == 0


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_one_bit_with_clipping_on_fine_domains(epsilon: str) -> None:
    eps = Epsilon.parse(epsilon)
    for text, clip in (("0:40:0.01", ("3.3", "29.99")), ("-7:9", None), ("1:4096", ("0.5", "5000"))):
        channel = MECHANISMS["one-bit"].design(Domain.parse(text), None, eps, "squared", {"clip": clip})
        assert isinstance(channel, OneBitChannel)
        rows = [[N - w, w] for w in channel.weights.tolist()]
        assert violations(columns_of(rows), eps) == 0
        assert channel.worst_case_odds == max(Fraction(a, b) for a, b in columns_of(rows))


ADDITIVE = ["laplace", "discrete-laplace", "staircase", "discrete-staircase"]


@pytest.mark.parametrize("epsilon", ["0.05", "0.7", "10"])
@pytest.mark.parametrize("name", ADDITIVE)
def test_additive_noise_on_domains_of_every_size_clipped_and_not(name: str, epsilon: str) -> None:
    eps = Epsilon.parse(epsilon)
    large = [("0:20000", False), ("0:20000", True)] if epsilon == "0.7" else []
    for text, unclipped in (("0:1", epsilon == "10"), ("0:2", False), ("-3:3:0.5", epsilon == "10"), *large):
        channel = MECHANISMS[name].design(Domain.parse(text), None, eps, "squared", {"unclipped": unclipped})
        assert isinstance(channel, NoiseChannel)
        assert unclipped == (channel.reach > 0)
        rows = rows_of(channel)
        assert {sum(row) for row in rows} == {N}
        assert violations(columns_of(rows), eps) == 0
        assert channel.worst_case_odds == max(Fraction(a, b) for a, b in columns_of(rows))
        # nothing is wasted either: a thousandth less ε is not kept
        assert not channel.satisfies(Epsilon(eps.nano * 999 // 1000)) or (name, channel.cells) == ("laplace", 1)


@pytest.mark.parametrize("name", ADDITIVE)
@pytest.mark.parametrize("unclipped", [False, True])
def test_control_noise_for_another_sensitivity_epsilon_or_place_is_detected(name: str, unclipped: bool) -> None:
    eps, k = Epsilon.parse("1.5"), 61
    channel = MECHANISMS[name].design(Domain.parse(f"0:{k - 1}"), None, eps, "squared", {"unclipped": unclipped})
    assert isinstance(channel, NoiseChannel)
    weights, cells, reach = channel.weights.tolist(), channel.cells, channel.reach
    wider = lattice_rows(cells + cells // (k - 1), reach, [*weights, *[weights[-1]] * (cells // (k - 1))])
    assert violations(columns_of(wider), eps) > 0  # noise for k labels on k + 1 of them
    narrow = MECHANISMS[name].design(
        Domain.parse(f"0:{k - 1}"), None, Epsilon.parse("1.515"), "squared", {"unclipped": unclipped}
    )
    assert violations(columns_of(rows_of(narrow)), eps) > 0  # type: ignore[arg-type]  # it is noise as well
    assert not narrow.satisfies(eps)
    moved = [weights[0], *weights[:-1]]  # every weight one step further out, the tail cut
    assert violations(columns_of(lattice_rows(cells, reach, moved)), eps) > 0


@pytest.mark.parametrize("epsilon", ["0.05", "0.7", "2", "10"])
def test_the_exponential_mechanism_at_both_scales(epsilon: str) -> None:
    eps = Epsilon.parse(epsilon)
    for text in ("0:1", "0:2", "-3:3:0.5", "0:5000" if epsilon == "2" else "0:300"):
        paper, tight = (
            MECHANISMS["exponential"].design(Domain.parse(text), None, eps, "squared", {"tight": tight})
            for tight in (False, True)
        )
        for channel in (paper, tight):
            assert isinstance(channel, ExponentialChannel)
            rows = channel.weights[:: max(1, channel.m // 40)].tolist() + channel.weights[-1:].tolist()
            assert {sum(row) for row in rows} == {N}
            assert violations(columns_of(rows), eps) == 0
        # the paper's scale keeps half of ε, the tight one all but a millionth
        assert abs(paper.epsilon.nano - eps.nano // 2) <= 2
        assert 0 <= eps.nano - tight.epsilon.nano <= eps.nano // 100_000 + 2


def test_control_exponential_rows_normalised_alike_or_for_more_are_detected() -> None:
    eps, domain = Epsilon.parse("2"), Domain.parse("0:40")
    channel = MECHANISMS["exponential"].design(domain, None, eps, "squared", {"tight": True})
    assert isinstance(channel, ExponentialChannel)
    rows = channel.weights.tolist()
    greedy = [[int(w * 1.01) if j == a else w for j, w in enumerate(row)] for a, row in enumerate(rows)]
    assert violations(columns_of(greedy), eps) > 0
    middle = rows[20][20::-1]  # by distance, up to 20
    alike = [[middle[min(abs(j - a), 20)] for j in range(41)] for a in range(41)]
    for a, row in enumerate(alike):
        row[a] += N - sum(row)
    assert violations(columns_of(alike), eps) > 0
    sharper = ExponentialChannel(domain=domain, cells=40, decay=Epsilon(eps.nano * 101 // 100))
    assert not sharper.satisfies(eps)


class Words:
    """A source that hands out given words."""

    def __init__(self, words: list[int]) -> None:
        self.words = np.array(words, dtype=np.uint64)

    def uint64(self, n: int) -> np.ndarray:
        taken, self.words = self.words[:n].copy(), self.words[n:]
        return taken


@pytest.mark.parametrize("d", [2, 3, 7, 256, 4096])
def test_the_sampler_turns_exactly_a_words_into_the_own_bin_and_b_into_each_other(d: int) -> None:
    A, B = rr_weights(Epsilon.parse("1"), d)
    dtype = np.uint8 if d <= 256 else np.uint16
    for own in {0, 1, d // 2, d - 1}:
        others = [j for j in range(d) if j != own]
        ends = [(0, own), (A - 1, own)]
        for position, other in enumerate(others):
            ends += [(A + position * B, other), (A + (position + 1) * B - 1, other)]
        assert ends[-1][0] == N - 1
        bins = np.full(len(ends), own, dtype=dtype)
        drawn = sample_rr(bins, d, A, B, Words([u for u, _ in ends]))
        assert drawn.tolist() == [want for _, want in ends]


def test_the_one_bit_sampler_turns_exactly_w_words_into_the_upper_output() -> None:
    channel = MECHANISMS["one-bit"].design(Domain.parse("0:9"), None, Epsilon.parse("1"), "squared", {})
    assert isinstance(channel, OneBitChannel)
    for index, weight in enumerate(channel.weights.tolist()):
        words = [0, weight - 1, weight, N - 1]
        drawn = sample_one_bit(np.full(4, index), channel, Words(words))
        assert drawn.tolist() == [1, 1, 0, 0]


# --- planted controls --------------------------------------------------------------------------------------------


def test_control_a_float_probability_is_detected() -> None:
    found = 0
    rng = np.random.default_rng(0)
    for nano in rng.integers(5 * 10**7, 10**10, size=400).tolist():
        eps, d = Epsilon(nano), int(rng.integers(2, 300))
        p = math.exp(float(eps)) / (math.exp(float(eps)) + d - 1)
        B = (N - int(p * N)) // (d - 1)
        found += violations([(N - (d - 1) * B, B)], eps)
    assert found > 40


def test_control_weights_raised_by_one_percent_are_detected_everywhere() -> None:
    for epsilon in EPSILONS:
        eps = Epsilon.parse(epsilon)
        for d in OUTPUTS:
            A, _ = rr_weights(eps, d)
            raised = A + A // 100
            rest = (N - raised) // (d - 1) if raised < N else 0
            assert violations([(N - (d - 1) * rest, rest)], eps) == 1
            forged = N - (d - 1) * rest
            if 1 <= rest <= forged and d <= 64:
                channel = RRChannel(
                    domain=Domain.parse(f"1:{d}"),
                    boundaries=np.arange(d + 1),
                    outputs=np.arange(1.0, d + 1),
                    A=forged,
                    B=rest,
                    bin_means=np.arange(1.0, d + 1),
                )
                assert not channel.satisfies(eps)


def test_control_a_scale_rounded_down_is_detected() -> None:
    found = 0
    for nano in np.random.default_rng(1).integers(1, 10**10, size=500).tolist():
        eps = Epsilon(nano)
        channel = AdditiveChannel(domain=Domain.parse("0:100"), scale=Fraction(100 / float(eps)))
        found += not channel.satisfies(eps)
    assert found > 100
