"""k-ary randomized response, on all labels and on the likeliest ones of a prior."""

from __future__ import annotations

import itertools
import json
from fractions import Fraction

import numpy as np
import pytest

from label_dp.channels.base import N
from label_dp.channels.registry import channel_from_json
from label_dp.channels.rr import RRChannel
from label_dp.channels.top_labels import TopLabelsChannel
from label_dp.domain import Domain
from label_dp.errors import InvalidEpsilon, InvalidMechanism, InvalidPrior, MalformedManifest
from label_dp.privacy import Epsilon
from labels_party.mechanisms.catalogue import MECHANISMS
from labels_party.mechanisms.rr_with_prior import rr_channel, rr_with_prior_channel, sample_top_labels

ONE = Epsilon.parse("1")
TEN = Domain.parse("0:9")
PRIOR = np.array([0.02, 0.3, 0.0, 0.25, 0.01, 0.2, 0.02, 0.15, 0.05, 0.0])


def top_labels(epsilon: str = "3") -> TopLabelsChannel:
    channel = rr_with_prior_channel(TEN, PRIOR, Epsilon.parse(epsilon))
    assert isinstance(channel, TopLabelsChannel)
    return channel


def test_all_labels_are_outputs_and_the_correction_is_unbiased() -> None:
    channel = rr_channel(Domain.parse("-3:3:0.5"), ONE)
    assert isinstance(channel, RRChannel)
    assert channel.d == channel.k == 13
    assert np.array_equal(channel.outputs, channel.labels)
    assert channel.unbiased
    assert channel.matrix() @ channel.debiased_outputs() == pytest.approx(channel.labels, abs=1e-12)
    assert channel.satisfies(ONE)
    assert not channel.satisfies(Epsilon.parse("0.999999999"))


@pytest.mark.parametrize("epsilon", ["0.1", "0.7", "1.5", "3", "8"])
def test_it_keeps_the_labels_that_make_the_output_right_most_often(epsilon: str) -> None:
    """Against every subset of the labels, by brute force."""
    prior = np.array([0.05, 0.35, 0.1, 0.3, 0.0, 0.2])
    odds = np.exp(float(epsilon))
    best = max(
        sum(prior[list(kept)]) * odds / (odds + len(kept) - 1)
        for size in range(1, 7)
        for kept in itertools.combinations(range(6), size)
    )
    channel = rr_with_prior_channel(Domain.parse("0:5"), prior, Epsilon.parse(epsilon))
    right = channel.output_distribution(prior) if channel.m == 1 else channel.rows(0, 6)
    if channel.m == 1:
        assert channel.outputs.tolist() == [1.0]
        assert prior[1] == pytest.approx(best)
    else:
        positions = channel.outputs.astype(int)
        assert float(sum(prior[y] * right[y, j] for j, y in enumerate(positions))) == pytest.approx(best, rel=1e-9)


def test_weights_are_exact_where_the_outputs_do_not_divide_them() -> None:
    channel = top_labels()
    assert channel.kept.tolist() == [1, 3, 5, 7, 8]
    whole, rest = channel.uniform_weights
    assert whole * channel.d + rest == N
    assert rest > 0
    weights = [[channel.B] * channel.d for _ in channel.kept]
    for j, row in enumerate(weights):
        row[j] = channel.A
    weights.append([whole + (j < rest) for j in range(channel.d)])
    assert {sum(row) for row in weights} == {N}
    ratios = [Fraction(max(column), min(column)) for column in zip(*weights, strict=True)]
    assert max(ratios) == channel.worst_case_odds
    assert channel.satisfies(Epsilon.parse("3"))
    assert not channel.satisfies(Epsilon.parse("2.999999"))


def test_figures_are_those_of_the_matrix() -> None:
    channel, rng = top_labels("1.5"), np.random.default_rng(0)
    M = channel.matrix()
    assert M.sum(axis=1) == pytest.approx(1.0, abs=1e-15)
    assert channel.output_distribution(PRIOR) == pytest.approx(PRIOR @ M, abs=1e-15)
    assert channel.flip_probability(PRIOR) == pytest.approx(1 - float(PRIOR @ M.max(axis=1)), abs=1e-15)
    for values in (channel.outputs, rng.normal(40.0, 3.0, channel.m)):
        means, variances = channel.moments(values)
        assert means == pytest.approx(M @ values, rel=1e-12)
        assert variances == pytest.approx((M * (values - (M @ values)[:, None]) ** 2).sum(axis=1), rel=1e-9)
    corrected = M @ channel.debiased_outputs()
    assert corrected[channel.kept] == pytest.approx(channel.outputs, abs=1e-12)
    others = np.setdiff1d(np.arange(10), channel.kept)
    assert corrected[others] == pytest.approx(channel.outputs.mean(), abs=1e-12)
    assert not channel.unbiased


def test_the_sampler_turns_as_many_words_into_an_output_as_its_weight() -> None:
    channel = top_labels()
    whole, rest = channel.uniform_weights
    starts = [j * whole + min(j, rest) for j in range(channel.d + 1)]
    words = [w for a, b in itertools.pairwise(starts) for w in (a, b - 1)]

    class Source:
        def __init__(self) -> None:
            self.calls = [np.zeros(len(words), dtype=np.uint64), np.array(words, dtype=np.uint64)]

        def uint64(self, n: int) -> np.ndarray:
            return self.calls.pop(0)

    other = int(np.setdiff1d(np.arange(10), channel.kept)[0])
    drawn = sample_top_labels(np.full(len(words), other), channel, Source())
    assert drawn.tolist() == [j for j in range(channel.d) for _ in range(2)]
    kept = int(channel.kept[1])
    assert sample_top_labels(np.full(len(words), kept), channel, Source()).tolist() == [1] * len(words)  # u = 0 < A


def test_the_manifest_form_is_short_and_read_strictly() -> None:
    channel = top_labels()
    data = json.loads(json.dumps(channel.as_json()))
    again = channel_from_json(data, TEN)
    assert again.as_json() == data
    assert np.array_equal(again.matrix(), channel.matrix())
    for change in (
        {"kept": data["kept"][::-1]},
        {"kept": [*data["kept"][:-1], "10"]},
        {"kept": [*data["kept"], "9"]},
        {"kept": ["1"]},
        {"kept": [data["kept"][0], data["kept"][0], *data["kept"][2:]]},
        {"kept": [str(i) for i in range(40_000)]},
        {"A": data["B"], "B": data["A"]},
        {"A": str(int(data["A"]) + 1)},
        {"B": "0"},
    ):
        with pytest.raises(MalformedManifest):
            channel_from_json(data | change, TEN)


def test_odd_priors_and_refusals() -> None:
    one = np.zeros(10)
    one[4] = 1.0
    constant = rr_with_prior_channel(TEN, one, ONE)
    assert constant.outputs.tolist() == [4.0]
    assert constant.satisfies(Epsilon(0))
    uniform = rr_with_prior_channel(TEN, np.full(10, 0.1), ONE)
    assert uniform.m == 10
    assert uniform.unbiased
    assert rr_with_prior_channel(TEN, np.full(10, 0.1), Epsilon(0)).satisfies(Epsilon(0))
    large = Domain.parse("0:99999")
    assert rr_with_prior_channel(large, np.full(100_000, 1e-5), Epsilon.parse("20")).satisfies(Epsilon.parse("20"))
    with pytest.raises(InvalidMechanism, match="at most 16384"):
        rr_channel(large, ONE)
    with pytest.raises(InvalidEpsilon):
        rr_channel(TEN, Epsilon(0))
    with pytest.raises(InvalidPrior, match="needs a prior"):
        MECHANISMS["rr-with-prior"].design(TEN, None, ONE, "squared", {})
    assert len(json.dumps(rr_channel(Domain.parse("0:16383"), ONE).as_json())) < 1 << 20
    assert MECHANISMS["rr"].design(Domain.parse("7:7"), None, ONE, "squared", {}).outputs.tolist() == [7.0]
