"""Channels: weights, ε, expected figures, correction, and the strict reader of their manifest form."""

from __future__ import annotations

import json
import time
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from label_dp.channels.base import Channel, N
from label_dp.channels.dense import DenseChannel
from label_dp.channels.one_bit import OneBitChannel
from label_dp.channels.registry import channel_from_json
from label_dp.channels.rr import RRChannel
from label_dp.domain import Domain
from label_dp.errors import InvalidMechanism, MalformedManifest
from label_dp.losses import SQUARED
from label_dp.privacy import Epsilon
from tests.support.messages import laplace

D10 = Domain.parse("0:9")
PRIOR = np.arange(1.0, 11.0) / 55.0


def rr() -> RRChannel:
    B = N // 5
    return RRChannel(
        domain=D10,
        boundaries=np.array([0, 3, 7, 10]),
        outputs=np.array([1.5, 5.0, 7.0]),
        A=N - 2 * B,
        B=B,
        bin_means=np.array([1.1, 4.7, 8.0]),
    )


def one_bit(low: str = "0", high: str = "9", domain: Domain = D10) -> OneBitChannel:
    return OneBitChannel(domain=domain, low=Decimal(low), high=Decimal(high), A=N - N // 4, B=N // 4)


def noise() -> Channel:
    return laplace("0:9", 2.5)


def dense() -> DenseChannel:
    domain = Domain.from_values([0, 1, 3])
    rows = [[N // 2, N // 4, N // 4], [N // 4, N // 2, N // 4], [N // 4, N // 4, N // 2]]
    return DenseChannel(domain=domain, outputs=np.array([-1.0, 1.0, 4.0]), weights=np.array(rows, dtype=np.uint64))


KINDS = [rr, one_bit, noise, dense]


@pytest.mark.parametrize("make", KINDS)
def test_common_members_agree_with_the_matrix(make: Any) -> None:
    channel: Channel = make()
    M, prior = channel.matrix(), np.arange(1.0, channel.k + 1) / np.arange(1.0, channel.k + 1).sum()
    assert M.shape == (channel.k, channel.m)
    assert M.sum(axis=1) == pytest.approx(np.ones(channel.k), abs=1e-14)
    cost = SQUARED.matrix(channel.outputs, channel.labels)
    assert channel.expected_loss(prior, "squared") == pytest.approx(float(prior @ (M * cost).sum(axis=1)), rel=1e-12)
    assert channel.output_distribution(prior) == pytest.approx(prior @ M, abs=1e-14)
    assert channel.flip_probability(prior) == pytest.approx(1 - float(prior @ M.max(axis=1)), abs=1e-14)
    ratio = float(np.log((M.max(axis=0) / M.min(axis=0)).max()))
    assert float(channel.epsilon) == pytest.approx(ratio, abs=2e-9)
    assert float(channel.epsilon) >= ratio - 1e-12
    assert channel.satisfies(channel.epsilon)
    assert not channel.satisfies(Epsilon(channel.epsilon.nano - 2))


@pytest.mark.parametrize("make", [rr, one_bit, dense])
def test_correction_and_its_variance(make: Any) -> None:
    channel: Channel = make()
    values, M = channel.debiased_outputs(), channel.matrix()
    mean = M @ values
    target = {"rr": lambda: np.repeat(rr().bin_means, [3, 4, 3])}.get(channel.kind, lambda: channel.labels)()
    assert mean == pytest.approx(target, abs=1e-12)
    variance = (M * (values[None, :] - mean[:, None]) ** 2).sum(axis=1)
    assert channel.noise_variance() == pytest.approx(variance, rel=1e-10)
    assert channel.corrected_variance(None) == pytest.approx(float(variance.mean()), rel=1e-10)


def test_clipped_laplace_noise_is_corrected_at_its_ends() -> None:
    channel = noise()
    M, values = channel.matrix(), channel.debiased_outputs()
    assert np.array_equal(values[1:-1], channel.outputs[1:-1])
    assert M @ values == pytest.approx(channel.labels, abs=1e-12)
    assert channel.noise_variance() == pytest.approx(M @ (values * values) - (M @ values) ** 2, rel=1e-10)
    assert channel.epsilon <= Epsilon.parse("2.5")
    assert channel.unbiased


@pytest.mark.parametrize("make", KINDS)
def test_moments_of_any_values_are_those_of_the_matrix(make: Any) -> None:
    channel: Channel = make()
    M, values = channel.matrix(), np.random.default_rng(1).normal(1e3, 2.0, channel.m)
    mean = M @ values
    means, variances = channel.moments(values)
    assert means == pytest.approx(mean, rel=1e-12)
    assert variances == pytest.approx((M * (values[None, :] - mean[:, None]) ** 2).sum(axis=1), rel=1e-9)


def test_unbiased_means_on_the_whole_domain() -> None:
    assert not rr().unbiased
    B = N // 20
    single = RRChannel(
        domain=D10, boundaries=np.arange(11), outputs=np.arange(10.0), A=N - 9 * B, B=B, bin_means=np.arange(10.0)
    )
    assert single.unbiased
    assert single.matrix() @ single.debiased_outputs() == pytest.approx(single.labels, abs=1e-12)
    assert one_bit().unbiased
    assert one_bit("-1", "9.5").unbiased
    assert not one_bit("0", "8.9").unbiased
    assert dense().unbiased


def test_one_bit_weights_are_the_nearest_integers() -> None:
    for domain, low, high in ((D10, "0.7", "8.123"), (Domain.parse("-3:5:0.25"), "-2.9", "4"), (D10, "-4", "30")):
        channel = one_bit(low, high, domain)
        a, b = Fraction(low), Fraction(high)
        for index, y in enumerate(domain.integers()):
            clipped = min(max(Fraction(y, domain.lattice[0]), a), b)
            exact = channel.B + (channel.A - channel.B) * (clipped - a) / (b - a)
            assert abs(int(channel.weights[index]) - exact) <= Fraction(1, 2)
        mean = channel.matrix() @ channel.outputs
        assert mean == pytest.approx(np.clip(domain.values, float(a), float(b)), abs=1e-12)


def test_one_bit_listed_and_range_forms_give_the_same_weights() -> None:
    listed = Domain.from_values([str(v) for v in range(10)])
    assert np.array_equal(one_bit("1.5", "7.25").weights, one_bit("1.5", "7.25", listed).weights)


def test_one_bit_with_very_fine_ends_uses_exact_arithmetic() -> None:
    fine = "0." + "0" * 30 + "1"
    channel = one_bit(fine, "9")
    assert int(channel.weights[0]) == channel.B
    assert int(channel.weights[9]) == channel.A
    assert np.all(np.diff(channel.weights.astype(object)) > 0)


def test_large_domains_need_no_matrix() -> None:
    domain = Domain.parse("0:1000000")
    start = time.process_time()
    channel = one_bit("0", "1000000", domain)
    assert channel.epsilon == one_bit().epsilon
    assert channel.expected_loss(None, "squared") > 0
    assert time.process_time() - start < 3.0
    with pytest.raises(InvalidMechanism, match="too large to be written out"):
        laplace("0:1000000").matrix()


def test_one_bin_is_a_constant_channel() -> None:
    channel = RRChannel(
        domain=D10, boundaries=np.array([0, 10]), outputs=np.array([4.0]), A=N, B=1, bin_means=np.array([4.5])
    )
    assert channel.epsilon == Epsilon(0)
    assert channel.satisfies(Epsilon(0))
    assert np.array_equal(channel.matrix(), np.ones((10, 1)))
    assert np.array_equal(channel.debiased_outputs(), [4.5])
    assert np.array_equal(channel.noise_variance(), np.zeros(10))
    assert channel.flip_probability() == 0.0


def test_dense_refuses_an_ill_conditioned_correction() -> None:
    domain = Domain.from_values([0, 1, 3])
    rows = np.array([[N // 2, N // 2]] * 3, dtype=np.uint64)
    channel = DenseChannel(domain=domain, outputs=np.array([0.0, 3.0]), weights=rows)
    with pytest.raises(InvalidMechanism):
        channel.debiased_outputs()
    assert not channel.unbiased
    assert channel.satisfies(Epsilon(0))


@pytest.mark.parametrize("make", KINDS)
def test_manifest_form_round_trips(make: Any) -> None:
    channel: Channel = make()
    data = json.loads(json.dumps(channel.as_json()))
    again = channel_from_json(data, channel.domain)
    assert type(again) is type(channel)
    assert again.as_json() == channel.as_json()
    assert again.epsilon == channel.epsilon
    assert np.array_equal(again.matrix(), channel.matrix())


def corrupted(make: Any) -> list[Any]:
    data = make().as_json()
    bad: list[Any] = [None, [], "rr", {}, {"kind": "rr"}, {**data, "kind": "new"}, {**data, "extra": "1"}]
    bad += [{name: value for name, value in data.items() if name != dropped} for dropped in data]
    hostile = [None, True, 1, 1.5, "", "1.0e", "-1", "01", " 1", "1 ", "NaN", "inf", "1e999", "٣", "9" * 500, [], {}]
    for name, value in data.items():
        if name == "kind":
            continue
        bad += [{**data, name: wrong} for wrong in hostile]
        if isinstance(value, list):
            bad += [{**data, name: value[:-1]}, {**data, name: [*value, value[-1]]}, {**data, name: value[::-1]}]
            bad += [{**data, name: [wrong, *value[1:]]} for wrong in hostile]
    for name in ("A", "B"):
        if name in data:
            bad.append({**data, name: str(int(str(data[name])) + 1)})
    return bad


@pytest.mark.parametrize("make", KINDS)
def test_every_corruption_is_refused_as_malformed(make: Any) -> None:
    domain = make().domain
    for data in corrupted(make):
        if (
            isinstance(data, dict)
            and data.get("kind") == "dense"
            and data.get("weights") == make().as_json()["weights"][::-1]
        ):
            continue  # another order of rows is another valid channel
        try:
            accepted = channel_from_json(data, domain).as_json()
        except MalformedManifest:
            continue
        assert accepted == data, f"accepted but rewritten: {data}"
        assert data["kind"] in ("one-bit", "laplace")


def test_specific_inconsistencies_are_refused() -> None:
    data: dict[str, Any] = rr().as_json()
    for change in (
        {"boundaries": ["0", "3", "3", "10"]},
        {"boundaries": ["0", "3", "7", "11"]},
        {"boundaries": ["1", "3", "7", "10"]},
        {"outputs": ["1.5", "1.5", "7.0"]},
        {"outputs": ["1.50", "5.0", "7.0"]},
        {"bin_means": ["3.0", "4.7", "8.0"]},
        {"N": str(N - 1)},
        {"A": str(N // 3 - 1), "B": str(N // 3 + 1)},
        {"B": "0", "A": str(N)},
    ):
        with pytest.raises(MalformedManifest):
            channel_from_json({**data, **change}, D10)
    with pytest.raises(MalformedManifest):
        channel_from_json(data, Domain.parse("0:8"))


def test_a_dense_row_that_wraps_around_is_refused() -> None:
    data: dict[str, Any] = dense().as_json()
    data["weights"][0] = [str(N - 1), str(N - 1), "2"]
    with pytest.raises(MalformedManifest):
        channel_from_json(data, dense().domain)
    data["weights"][0] = [str(N - 1), "1", "0"]
    with pytest.raises(MalformedManifest):
        channel_from_json(data, dense().domain)


def test_clipping_ends_of_absurd_length_are_refused() -> None:
    for low in ("-1" + "0" * 60, "0." + "0" * 60 + "1"):
        with pytest.raises(InvalidMechanism):
            one_bit(low, "9")
