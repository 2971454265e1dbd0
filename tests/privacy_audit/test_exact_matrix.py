"""Exact audit of every mechanism: integer ratios against a rational lower bound of e^ε that is computed here.

No tolerance anywhere. Planted controls (a float probability, weights raised by one percent) must be detected by the
same audit, or a clean run would mean nothing.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any, cast

import numpy as np
import pytest

from label_dp.channels.base import N
from label_dp.channels.dense import DenseChannel
from label_dp.channels.exponential import ExponentialChannel
from label_dp.channels.knots import KnotsChannel
from label_dp.channels.noise import NoiseChannel
from label_dp.channels.one_bit import OneBitChannel
from label_dp.channels.rr import RRChannel
from label_dp.channels.top_labels import TopLabelsChannel
from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.mechanisms import auto
from labels_party.mechanisms.catalogue import MECHANISMS
from labels_party.mechanisms.randomized_response import rr_weights
from labels_party.mechanisms.sampling import SAMPLERS
from tests.support.exact_matrix import (
    CASES,
    LINEAR_PROGRAMS,
    check_matrix,
    columns,
    columns_of,
    design,
    knot_rows,
    lattice_rows,
    uncovered,
    violations,
    window_columns,
    worst_odds,
    wrong_words,
)

EPSILONS = ["0.05", "0.1", "0.25", "0.5", "0.693147181", "1", "1.5", "2", "3", "4.605170186", "6", "8", "10"]
ADDITIVE = ["laplace", "discrete-laplace", "staircase", "discrete-staircase"]
OUTPUTS = [2, 3, 5, 17, 64, 255, 256, 257, 1000, 4096]


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_randomized_response_up_to_4096_outputs(epsilon: str) -> None:
    eps = Epsilon.parse(epsilon)
    for d in OUTPUTS:
        A, B = rr_weights(eps, d)
        assert A + (d - 1) * B == N
        assert violations([(A, B)] * d, eps) == 0
        # no weight is wasted: one more unit on the own bin would break the bound or the sum
        assert violations([(A + (d - 1), B - 1)], eps) == 1


def noise_rows(channel: NoiseChannel) -> list[list[int]]:
    return lattice_rows(channel.cells, channel.reach, channel.weights.tolist())


def test_no_mechanism_option_or_sampler_is_left_out() -> None:
    assert uncovered() == []


def test_control_an_unchecked_mechanism_option_or_sampler_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(MECHANISMS, "new", MECHANISMS["rr"])
    monkeypatch.setitem(MECHANISMS, "laplace", dataclasses.replace(MECHANISMS["rr"], options=frozenset({"wider"})))
    monkeypatch.setitem(cast("dict[Any, Any]", SAMPLERS), DenseChannel, SAMPLERS[RRChannel])
    monkeypatch.setattr(auto, "CANDIDATES", (*auto.CANDIDATES, auto.Candidate("rr", {"new": 1}, "newer")))
    found = ["new", "laplace: unclipped", "laplace: wider", "auto: newer", "sampler: DenseChannel"]
    assert uncovered() == found


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize(("name", "options"), CASES)
def test_every_mechanism_keeps_its_epsilon(name: str, options: dict[str, Any], epsilon: str) -> None:
    domain = Domain.parse("0:24" if name in LINEAR_PROGRAMS else "0:120")
    assert check_matrix(design(name, domain, Epsilon.parse(epsilon), options), Epsilon.parse(epsilon)) >= 1


@pytest.mark.parametrize("epsilon", ["0.05", "1.5", "10"])
@pytest.mark.parametrize("name", ["rr", "rr-with-prior", "discrete-laplace", "discrete-staircase", "exponential"])
def test_mechanisms_of_thousands_of_outputs(name: str, epsilon: str) -> None:
    domain, eps = Domain.parse("1:2048" if name == "exponential" else "1:4096"), Epsilon.parse(epsilon)
    channel = design(name, domain, eps, {}, np.full(domain.k, 1 / domain.k))
    outputs = check_matrix(channel, eps)
    assert outputs == domain.k or name == "rr-with-prior"


def test_noise_has_the_same_extremes_with_and_without_its_matrix() -> None:
    for name, unclipped in itertools.product(ADDITIVE, (False, True)):
        channel = design(name, Domain.parse("0:40"), Epsilon.parse("2"), {"unclipped": unclipped})
        assert isinstance(channel, NoiseChannel)
        assert window_columns(channel) == columns(channel)


def words_are_right(name: str, options: dict[str, Any], domain: Domain) -> bool:
    channel = design(name, domain, Epsilon.parse("2"), options)
    positions = {0, 1, channel.k // 2, channel.k - 1} if channel.m < 5000 else {1}
    return not any(wrong_words(channel, position) for position in positions)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_every_word_of_a_sampler_gives_the_output_that_its_weights_say(name: str, options: dict[str, Any]) -> None:
    assert words_are_right(name, options, Domain.parse("0:12"))
    if not name.startswith("discrete-"):  # which takes equally spaced values only
        assert words_are_right(name, options, Domain.from_values([0, 1, 2, 4.5, 7, 20]))


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
        assert channel.worst_case_odds == worst_odds(columns_of(rows))


@pytest.mark.parametrize("epsilon", ["0.05", "0.7", "10"])
@pytest.mark.parametrize("name", ADDITIVE)
def test_additive_noise_on_domains_of_every_size_clipped_and_not(name: str, epsilon: str) -> None:
    eps = Epsilon.parse(epsilon)
    large = [("0:20000", False), ("0:20000", True)] if epsilon == "0.7" else []
    for text, unclipped in (("0:1", epsilon == "10"), ("0:2", False), ("-3:3:0.5", epsilon == "10"), *large):
        channel = MECHANISMS[name].design(Domain.parse(text), None, eps, "squared", {"unclipped": unclipped})
        assert isinstance(channel, NoiseChannel)
        assert unclipped == (channel.reach > 0)
        rows = noise_rows(channel)
        assert {sum(row) for row in rows} == {N}
        assert violations(columns_of(rows), eps) == 0
        assert channel.worst_case_odds == worst_odds(columns_of(rows))
        # nothing is wasted either: a thousandth less ε is not kept
        assert not channel.satisfies(Epsilon(eps.nano * 999 // 1000)) or (name, channel.cells) == ("laplace", 1)


@pytest.mark.parametrize("name", ADDITIVE)
@pytest.mark.parametrize("unclipped", [False, True])
def test_control_noise_of_wrong_sensitivity_epsilon_or_place_is_detected(name: str, unclipped: bool) -> None:
    eps, k = Epsilon.parse("1.5"), 61
    channel = MECHANISMS[name].design(Domain.parse(f"0:{k - 1}"), None, eps, "squared", {"unclipped": unclipped})
    assert isinstance(channel, NoiseChannel)
    weights, cells, reach = channel.weights.tolist(), channel.cells, channel.reach
    wider = lattice_rows(cells + cells // (k - 1), reach, [*weights, *[weights[-1]] * (cells // (k - 1))])
    assert violations(columns_of(wider), eps) > 0  # noise for k labels on k + 1 of them
    narrow = MECHANISMS[name].design(
        Domain.parse(f"0:{k - 1}"), None, Epsilon.parse("1.515"), "squared", {"unclipped": unclipped}
    )
    assert violations(columns_of(noise_rows(narrow)), eps) > 0  # type: ignore[arg-type]  # it is noise as well
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


def test_control_wrongly_normalised_exponential_rows_are_detected() -> None:
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
