"""The exponential mechanism: rows against floats, both scales, its correction and where that is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from label_dp.channels.base import N
from label_dp.channels.exponential import MAX_CELLS, ExponentialChannel, _upper_word
from label_dp.domain import Domain
from label_dp.errors import InvalidEpsilon, InvalidMechanism
from label_dp.privacy import Epsilon
from labels_party.mechanisms.catalogue import MECHANISMS


def design(domain: Domain | str, epsilon: str, **options: bool) -> ExponentialChannel:
    parsed = Domain.parse(domain) if isinstance(domain, str) else domain
    channel = MECHANISMS["exponential"].design(parsed, None, Epsilon.parse(epsilon), "squared", options)
    assert isinstance(channel, ExponentialChannel)
    return channel


@pytest.mark.parametrize("epsilon", ["0.05", "1", "10"])
@pytest.mark.parametrize("tight", [False, True])
@pytest.mark.parametrize("domain", ["0:1", "-3:4:0.5", "0:300"])
def test_rows_are_truncated_laplace_noise(domain: str, epsilon: str, tight: bool) -> None:
    channel, y = design(domain, epsilon, tight=tight), Domain.parse(domain).values
    scale = (y[-1] - y[0]) / float(epsilon) * (1 if tight else 2)
    rows = np.exp(-np.abs(y[:, None] - y[None, :]) / scale)
    rows /= rows.sum(axis=1, keepdims=True)
    assert np.allclose(channel.matrix(), rows, rtol=2e-5, atol=0)
    assert np.array_equal(channel.outputs, y)
    assert {sum(row) for row in channel.weights.tolist()} == {N}
    assert np.array_equal(channel.weights, channel.weights[::-1, ::-1])


def test_more_values_than_the_table_has_use_a_lattice() -> None:
    assert design("0:2048", "1").on_lattice
    for domain, cells in (("0:2049", MAX_CELLS), (Domain.from_values([0, 1, 3]), 1024)):
        channel = design(domain, "1")
        assert channel.cells == cells
        assert not channel.on_lattice


def test_upper_words_are_those_of_whole_numbers() -> None:
    edge = [0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1]
    drawn = np.random.default_rng(0).integers(0, 2**64, 200, dtype=np.uint64).tolist()
    a = np.array([x for x in edge for _ in edge] + drawn, dtype=np.uint64)
    b = np.array(edge * len(edge) + drawn[::-1], dtype=np.uint64)
    assert _upper_word(a, b).tolist() == [int(x) * int(y) >> 64 for x, y in zip(a.tolist(), b.tolist(), strict=True)]


@pytest.mark.parametrize(("domain", "epsilon"), [("0:1", "0.3"), ("0:6", "2"), ("10:20", "10"), ("0:200", "12")])
def test_the_correction_gives_every_label_its_mean(domain: str, epsilon: str) -> None:
    channel = design(domain, epsilon, tight=True)
    assert channel.unbiased
    means = channel.matrix() @ channel.debiased_outputs()
    assert means == pytest.approx(channel.labels, abs=1e-9 * float(np.ptp(channel.debiased_outputs())))


def test_a_correction_that_would_amplify_noise_too_much_is_refused() -> None:
    channel = design("0:400", "0.5")
    with pytest.raises(InvalidMechanism, match="amplify its noise too much"):
        channel.debiased_outputs()
    assert not channel.unbiased


def test_an_epsilon_too_small_is_a_sentence() -> None:
    with pytest.raises(InvalidEpsilon, match="greater than zero"):
        design("0:10", "0")
    with pytest.raises(InvalidEpsilon, match="too small"):
        design("0:10", "0.000000001")
    assert design("0:10", "0.000001", tight=True).satisfies(Epsilon.parse("0.000001"))
    assert design("0:10", "500000").epsilon <= Epsilon.parse("30")


def test_scales_differ_as_the_paper_says() -> None:
    paper, tight = design("0:60", "1"), design("0:60", "1", tight=True)
    assert paper.expected_loss(None, "squared") > tight.expected_loss(None, "squared")
    assert float(paper.epsilon) == pytest.approx(0.5, abs=1e-8)  # half of what it is charged
    assert float(tight.epsilon) == pytest.approx(1.0, abs=1e-5)
    row = paper.matrix()[0]
    assert math.log(row[0] / row[-1]) == pytest.approx(0.5, rel=1e-6)
