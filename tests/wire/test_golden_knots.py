"""Golden manifest forms of knots, the likeliest labels and subsets; the standalone verifier reads them too."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from deploy.verify_standalone.channels import check_channel
from deploy.verify_standalone.domains import Domain as Labels
from deploy.verify_standalone.refusal import RefusedError
from label_dp.channels.base import Channel
from label_dp.channels.knots import KnotsChannel
from label_dp.channels.registry import channel_from_json
from label_dp.channels.subsets import SubsetChannel
from label_dp.channels.top_labels import TopLabelsChannel
from label_dp.documents.canonical import canonical_bytes
from label_dp.domain import Domain
from label_dp.errors import MalformedManifest
from label_dp.privacy import Epsilon
from labels_party.mechanisms.catalogue import MECHANISMS

DOMAIN = "0:5"
LABELS = Labels(Domain.parse(DOMAIN).as_json())  # as the standalone verifier reads it

GOLDEN: dict[str, bytes] = {
    # knots: positions of the labels that have rows of their own; N: weights are out of 2^64
    # residual_bias: bound of |E[output | label] - label| over all labels, a shortest decimal
    "knots": b'{"N":"18446744073709551616","kind":"knots","knots":["0","2","5"],"outputs":["-7.0","2.5","12.0"]'
    b',"residual_bias":"0.5000000000000001"'
    b',"weights":[["9223372036854775808","4611686018427387904","4611686018427387904"]'
    b',["4611686018427387904","9223372036854775808","4611686018427387904"]'
    b',["4611686018427387904","4611686018427387904","9223372036854775808"]]}',
    # kept: positions of the labels that are outputs; B: weight of each other one of them
    "rr-with-prior": b'{"A":"9223372036854775808","B":"4611686018427387904","N":"18446744073709551616"'
    b',"kept":["1","2","4"],"kind":"rr-with-prior"}',
    # blocks: base blocks of positions; label 1 is in the subsets of block 0 that begin at 0, 1 and 4, and of block 1 at
    # 1 and 2. A: weight of each of them; B: of the seven others, the first of which (at 5) has one more
    "subset-selection": b'{"A":"2170205185142300190","B":"1085102592571150095","N":"18446744073709551616"'
    b',"blocks":[["0","1","3"],["0","5"]],"kind":"subset-selection"}',
}


def read(kind: str) -> Channel:
    return channel_from_json(json.loads(GOLDEN[kind]), Domain.parse(DOMAIN))


@pytest.mark.parametrize("kind", GOLDEN)
def test_the_forms_are_those_of_the_first_version(kind: str) -> None:
    channel = read(kind)
    assert channel.kind == kind
    assert canonical_bytes(channel.as_json()) == GOLDEN[kind]
    assert channel.epsilon == Epsilon.parse("0.693147181")
    data = channel.as_json()
    assert "e^ε" in check_channel(data, LABELS, 693147181)
    with pytest.raises(RefusedError):
        check_channel(data, LABELS, 693147180)


def test_labels_between_knots_and_labels_that_are_not_kept() -> None:
    knots, top = read("knots"), read("rr-with-prior")
    assert isinstance(knots, KnotsChannel)
    assert isinstance(top, TopLabelsChannel)
    third = np.array([2, 1, 1]) / 4 / 2 + np.array([1, 2, 1]) / 4 / 2
    assert knots.matrix()[1] == pytest.approx(third)
    assert knots.upper_chance.tolist() == [0, 1 << 63, 0, (1 << 64) // 3, (1 << 64) * 2 // 3, 0]
    assert top.uniform_weights == ((1 << 64) // 3, 1)
    assert top.outputs.tolist() == [1.0, 2.0, 4.0]


def test_the_subsets_of_a_label() -> None:
    subsets = read("subset-selection")
    assert isinstance(subsets, SubsetChannel)
    assert (subsets.r, subsets.rest, subsets.m) == (5, 1, 12)
    with_it = [(s, 0) for s in (0, 1, 4)] + [(s, 1) for s in (1, 2)]
    a, b = subsets.A, subsets.B
    row = [a if divmod(o, 2) in with_it else b for o in range(12)]
    assert sum(row) + 1 == 2**64
    assert subsets.matrix()[1] == pytest.approx(np.array(row) / 2**64)
    assert subsets.outputs.tolist() == [0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0, 5.0, 5.0]


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("knots", {"knots": ["0", "3", "4"]}),
    ("knots", {"knots": ["0", "0", "5"]}),
    ("knots", {"weights": [["1", "1", "1"]] * 3}),
    ("rr-with-prior", {"kept": ["1", "2", "6"]}),
    ("rr-with-prior", {"kept": ["2", "1", "4"]}),
    ("rr-with-prior", {"kept": ["1", "2"]}),
    ("subset-selection", {"blocks": [["0", "1", "3"], ["1", "5"]]}),
    ("subset-selection", {"blocks": [["0", "3", "1"], ["0", "5"]]}),
    ("subset-selection", {"blocks": [["0", "1", "3"], ["0", "6"]]}),
    ("subset-selection", {"blocks": [["0", "1", "3"]]}),
    ("subset-selection", {"blocks": [["0", "1", "2", "3", "4", "5"], []]}),
    ("subset-selection", {"A": "2170205185142300188"}),
    ("subset-selection", {"A": "1085102592571150095", "B": "2170205185142300190"}),
]


@pytest.mark.parametrize(("kind", "change"), WRONG)
def test_wrong_members_are_refused_by_both_readers(kind: str, change: dict[str, Any]) -> None:
    data = json.loads(GOLDEN[kind]) | change
    with pytest.raises(MalformedManifest):
        channel_from_json(data, Domain.parse(DOMAIN))
    with pytest.raises(RefusedError):
        check_channel(data, LABELS, 10**9)


@pytest.mark.parametrize("name", ["unbiased", "balanced", "rr", "rr-with-prior", "subset-selection"])
def test_the_standalone_verifier_proves_the_epsilon_of_designed_channels(name: str) -> None:
    prior = np.arange(1.0, 7.0) / 21
    channel = MECHANISMS[name].design(Domain.parse(DOMAIN), prior, Epsilon.parse("1.5"), "squared", {})
    check_channel(channel.as_json(), LABELS, 1_500_000_000)
    with pytest.raises(RefusedError):
        check_channel(channel.as_json(), LABELS, 1_499_900_000)
