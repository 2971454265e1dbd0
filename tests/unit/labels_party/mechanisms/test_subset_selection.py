"""Subset selection: even lists of subsets, exact weights, and a draw that turns each weight into as many words."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from label_dp.channels.base import N
from label_dp.channels.registry import channel_from_json
from label_dp.channels.subsets import SubsetChannel
from label_dp.domain import Domain
from label_dp.errors import InvalidEpsilon, InvalidMechanism, MalformedManifest
from label_dp.privacy import Epsilon
from labels_party.mechanisms import sampling
from labels_party.mechanisms.subset_selection import even_blocks, subset_channel, subset_size
from tests.support.exact_matrix import check_matrix, columns, violations, wrong_words
from tests.support.posterior import subset_row

E = Epsilon.parse
TEN = Domain.parse("0:9")


def subsets(k: int = 10, epsilon: str = "1") -> SubsetChannel:
    channel = subset_channel(Domain.parse(f"0:{k - 1}"), E(epsilon))
    assert isinstance(channel, SubsetChannel)
    return channel


def members(channel: SubsetChannel) -> list[set[int]]:
    """The labels of every subset, by the definition of FORMAT.md."""
    t = len(channel.blocks)
    return [{(o // t + x) % channel.k for x in channel.blocks[o % t].tolist()} for o in range(channel.m)]


@pytest.mark.parametrize(("k", "epsilon"), [(3, "1"), (5, "0.1"), (10, "0.5"), (31, "2"), (100, "0.5"), (100, "6")])
def test_the_size_is_that_of_most_information(k: int, epsilon: str) -> None:
    """Against φ² of all subsets of d of k equally likely classes, in fractions of whole numbers."""
    odds = E(epsilon).exp_lower()
    figures = {d: Fraction(d * odds**2 + k - d) / (d * odds + k - d) ** 2 for d in range(1, k)}
    assert figures[subset_size(k, E(epsilon))] == max(figures.values())


@pytest.mark.parametrize(("k", "epsilon"), [(3, "1"), (6, "0.5"), (10, "1"), (31, "2"), (100, "0.5"), (128, "0.05")])
def test_every_label_is_in_equally_many_subsets_and_pairs_are_nearly_even(k: int, epsilon: str) -> None:
    channel = subsets(k, epsilon)
    inside = np.array([[y in subset for subset in members(channel)] for y in range(k)], np.float64)
    assert set(inside.sum(axis=1)) == {channel.r}
    assert set(inside.sum(axis=0)) == {channel.d}
    assert all(channel.labels.tolist().index(v) in s for v, s in zip(channel.outputs, members(channel), strict=True))
    strengths = np.linalg.eigvalsh(inside @ inside.T)[:-1]  # of pairs; all alike where pairs are even
    assert np.mean(strengths) * np.mean(1 / strengths) < 1.035


def test_control_one_block_or_chance_is_less_even() -> None:
    rng = np.random.default_rng(3)
    for lists in (even_blocks(100, 27)[:1], [np.sort(rng.choice(100, 27, replace=False)) for _ in range(4)]):
        strengths = sum(np.abs(np.fft.fft(np.isin(np.arange(100), one))) ** 2 for one in lists)[1:]
        assert np.mean(strengths) * np.mean(1 / strengths) > 1.1


@pytest.mark.parametrize("epsilon", ["0.000001", "0.1", "1", "5", "44"])
@pytest.mark.parametrize("k", [2, 3, 7, 12, 40])
def test_weights_are_exact_and_none_is_wasted(k: int, epsilon: str) -> None:
    channel = subsets(k, epsilon)
    check_matrix(channel, E(epsilon))
    assert channel.r * channel.A + (channel.m - channel.r) * channel.B + channel.rest == N
    rows = [[round(p * N) for p in row] for row in channel.rows(0, k)]
    for y, row in enumerate(rows):
        assert np.allclose(np.array(row, float), np.array(subset_row(channel, y), float), rtol=1e-15)
    if channel.B > 1:  # one less on all others would break the bound
        raised = channel.A + (channel.m - channel.r) // channel.r + 1
        assert raised > E(epsilon).exp_lower() * (channel.B - 1)


def test_control_a_wrong_design_is_found() -> None:
    """Weights for fewer subsets than a label is in keep no ε, and both provers say so."""
    channel = subsets(10, "1")
    raised = channel.A + channel.A // 100
    spare = N - channel.r * raised
    wrong = SubsetChannel(domain=TEN, blocks=channel.blocks, A=raised, B=spare // (channel.m - channel.r))
    assert violations(columns(wrong), E("1")) == channel.m
    assert not wrong.satisfies(E("1"))


@pytest.mark.parametrize("k", [2, 5, 10])
@pytest.mark.parametrize("epsilon", ["0.4", "1.3"])
def test_the_draw_turns_each_weight_into_as_many_words(k: int, epsilon: str) -> None:
    channel = subsets(k, epsilon)
    assert [wrong_words(channel, y) for y in range(k)] == [0] * k


def test_control_a_draw_with_a_wrong_shift_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = sampling.sample_subsets

    def against(index: Any, channel: SubsetChannel, stream: Any) -> Any:
        return draw((channel.k - index) % channel.k, channel, stream)

    monkeypatch.setattr(sampling, "sample_subsets", against)
    channel = subsets(10, "1")
    assert wrong_words(channel, 0) == 0  # which a shift the wrong way leaves where it is
    assert wrong_words(channel, 3) > 0


def test_corrected_outputs_are_unbiased() -> None:
    channel, prior = subsets(12, "1"), np.arange(12, 0, -1) / 78
    matrix = channel.matrix()
    assert channel.unbiased
    assert matrix @ channel.debiased_outputs() == pytest.approx(channel.labels, abs=1e-9)
    assert channel.output_distribution(prior) == pytest.approx(prior @ matrix, abs=1e-15)
    held = [sum(row[o] for o, subset in enumerate(members(channel)) if y in subset) for y, row in enumerate(matrix)]
    assert channel.flip_probability(prior) == pytest.approx(1 - held[0])
    assert held == pytest.approx([held[0]] * 12)


def test_subsets_that_do_not_tell_labels_apart_have_no_correction() -> None:
    alike = (np.array([0, 5]),)  # of ten labels, so that y and y + 5 share both subsets
    channel = SubsetChannel(domain=TEN, blocks=alike, A=N // 8, B=(N - N // 4) // 8)
    assert not channel.unbiased
    with pytest.raises(InvalidMechanism, match="do not tell all labels apart"):
        channel.debiased_outputs()


def test_the_manifest_form_is_short_and_read_strictly() -> None:
    channel = subsets(10, "1")
    data = json.loads(json.dumps(channel.as_json()))
    again = channel_from_json(data, TEN)
    assert again.as_json() == data
    assert np.array_equal(again.matrix(), channel.matrix())
    first, *rest = data["blocks"]
    for change in (
        {"blocks": []},
        {"blocks": [[], *rest]},
        {"blocks": [first[::-1], *rest]},
        {"blocks": [["1", *first[1:]], *rest]},
        {"blocks": [[*first[:-1], "10"], *rest]},
        {"blocks": [[str(x) for x in range(10)], *rest]},
        {"blocks": rest},
        {"blocks": [["0"]] * 20_000},
        {"A": data["B"], "B": data["A"]},
        {"A": str(int(data["A"]) + 1)},
        {"B": str(int(data["B"]) - 1)},
        {"B": "0"},
    ):
        with pytest.raises(MalformedManifest):
            channel_from_json(data | change, TEN)
    assert len(json.dumps(subsets(128, "0.05").as_json())) < 1 << 12


def test_odd_domains_and_refusals() -> None:
    assert subset_channel(Domain.parse("7:7"), E("1")).outputs.tolist() == [7.0]
    one = subsets(8, "5")  # at a large ε subsets hold one label: randomized response
    assert (one.m, one.d, one.r) == (8, 1, 1)
    assert math.isclose(one.A / one.B, math.exp(5), rel_tol=1e-9)
    with pytest.raises(InvalidMechanism, match="at most 128 labels"):
        subset_channel(Domain.parse("0:128"), E("1"))
    with pytest.raises(InvalidEpsilon):
        subset_channel(TEN, Epsilon(0))
