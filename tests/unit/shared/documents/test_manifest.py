"""Every rule that a manifest keeps before anything in it is believed."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from label_dp.channels.rr import RRChannel
from label_dp.documents.canonical import canonical_bytes
from label_dp.documents.manifest import Manifest
from label_dp.documents.signed import MAX_BYTES
from label_dp.domain import Domain
from label_dp.errors import MalformedManifest, UnsupportedVersion
from label_dp.privacy import Epsilon
from labels_party.mechanisms.one_bit import one_bit_channel
from labels_party.mechanisms.randomized_response import rr_weights

DOMAIN = Domain.parse("0:3")


def rr(epsilon: str, domain: Domain = DOMAIN) -> dict[str, Any]:
    a, b = rr_weights(Epsilon.parse(epsilon), 2)
    half = domain.k // 2
    means = np.array([domain.values[:half].mean(), domain.values[half:].mean()])
    channel = RRChannel(
        domain=domain, boundaries=np.array([0, half, domain.k]), outputs=means, A=a, B=b, bin_means=means
    )
    return channel.as_json()


def document() -> dict[str, Any]:
    return {
        "format": "label-dp-message/1",
        "id": "rel_1",
        "batch": "bat_1",
        "population": {"id": "pop_1", "name": "shop", "label": "revenue", "events": None},
        "audiences": ["features-party"],
        "key_id": "ed25519:" + "0" * 64,
        "created": "2026-01-02",
        "n": 10,
        "domain": DOMAIN.as_json(),
        "domain_source": "declared public by the owner",
        "out_of_domain": "clip",
        "missing_label": None,
        "presence": "declared public by the owner",
        "mechanism": {"name": "rr-on-bins", "why": "asked for"},
        "loss": "squared",
        "channel": rr("1"),
        "expected_loss": "0.5",
        "prior": {"source": "estimated", "method": "project", "cells": 4, "release": None},
        "epsilon": {"clip": "0", "prior": "0.1", "randomize": "1", "total": "1.1", "delta": "0"},
        "epsilon_spent": "1.1",
        "epsilon_lifetime": "2",
        "chain_head": {"day": "2026-01-02", "digest": "cd" * 32},
        "delta_spent": "0",
        "delta_lifetime": "0",
        "unit": {
            "kind": "example",
            "column": None,
            "max_examples": None,
            "epsilon_per_unit": None,
            "examples_beyond": None,
        },
        "clipping": None,
        "adjacency": "replace one example's label",
        "randomness": "ideal",
        "files": [
            {"role": "message", "name": "message.parquet", "bytes": 100, "rows": 10, "sha256": "a" * 64},
            {"role": "prior", "name": "prior.parquet", "bytes": 50, "rows": 4, "sha256": "b" * 64},
        ],
    }


def read(data: Any) -> Manifest:
    return Manifest.from_payload(canonical_bytes(data))


Change = Callable[[dict[str, Any]], object]


def changed(change: Change) -> dict[str, Any]:
    data = copy.deepcopy(document())
    change(data)
    return data


def test_a_good_manifest_reads_and_spells_the_same_again() -> None:
    manifest = read(document())
    assert manifest.payload() == canonical_bytes(document())
    assert manifest.epsilon.total == Epsilon.parse("1.1")
    assert manifest.domain == DOMAIN
    assert manifest.read_channel().epsilon <= Epsilon.parse("1")
    assert [f.name for f in manifest.message_files] == ["message.parquet"]
    assert manifest.prior_file is not None
    assert manifest.prior_file.role == "prior"


def put(*path: str | int, value: Any) -> Change:
    def change(data: Any) -> None:
        for step in path[:-1]:
            data = data[step]
        data[path[-1]] = value

    return change


def drop(*path: str | int) -> Change:
    def change(data: Any) -> None:
        for step in path[:-1]:
            data = data[step]
        del data[path[-1]]

    return change


BROKEN: dict[str, Change] = {
    "a channel of more ε than it states": put("channel", value=rr("1.000001")),
    "a channel with the weights of another ε": put("channel", "A", value=rr("2")["A"]),
    "parts that do not add up": put("epsilon", "total", value="1.2"),
    "ε hidden in the prior": put(
        "epsilon", value={"clip": "0", "prior": "1", "randomize": "0.1", "total": "1.1", "delta": "0"}
    ),
    "less spent than this release": put("epsilon_spent", value="1.099999999"),
    "more spent than the lifetime": put("epsilon_spent", value="2.000000001"),
    "a lifetime below this release": put("epsilon_lifetime", value="1"),
    "ε as a number": put("epsilon_spent", value=2),
    "ε not a number": put("epsilon_spent", value="nan"),
    "negative ε": put("epsilon", value={"clip": "-1", "prior": "1.1", "randomize": "1", "total": "1.1", "delta": "0"}),
    "ten decimals of ε": put("epsilon_lifetime", value="2.0000000001"),
    "no δ": drop("epsilon", "delta"),
    "a further part of ε": put("epsilon", "extra", value="0"),
    "rows that are not n": put("files", 0, "rows", value=9),
    "n of zero": put("n", value=0),
    "n as text": put("n", value="10"),
    "n as truth": put("n", value=True),
    "no audience": put("audiences", value=[]),
    "an audience twice": put("audiences", value=["a", "a"]),
    "an audience without a name": put("audiences", value=[""]),
    "no files": put("files", value=[]),
    "no message part": put("files", value=[document()["files"][1]]),
    "two priors": put("files", value=[*document()["files"], document()["files"][1] | {"name": "p2.parquet"}]),
    "a file twice": put("files", 1, "name", value="message.parquet"),
    "a digest in capitals": put("files", 0, "sha256", value="A" * 64),
    "a short digest": put("files", 0, "sha256", value="a" * 63),
    "an empty file": put("files", 0, "bytes", value=0),
    "an unknown role": put("files", 0, "role", value="malware"),
    "an unknown member": put("surprise", value=1),
    "an unknown member of a file": put("files", 0, "surprise", value=1),
    "no domain": drop("domain"),
    "no channel": drop("channel"),
    "a channel of an unknown kind": put("channel", "kind", value="magic"),
    "a channel with an unknown member": put("channel", "surprise", value="1"),
    "a channel over another domain": put("domain", value={"range": "0:4:1"}),
    "a domain that is none": put("domain", value={"range": "3:0"}),
    "a domain of too many values": put("domain", value={"range": "0:1e15"}),
    "another out-of-domain rule": put("out_of_domain", value="shrug"),
    "another presence rule": put("presence", value="guessed"),
    "another adjacency": put("adjacency", value="add or remove"),
    "another prior": put("prior", "source", value="raw histogram"),
    "a key id of another kind": put("key_id", value="rsa:" + "0" * 64),
    "no head of a chain": put("chain_head", value=None),
    "a head without a day": put("chain_head", value={"day": "", "digest": "cd" * 32}),
    "a date with a time": put("created", value="2026-01-02T03:04:05Z"),
    "another format": put("format", value="other/1"),
    "version zero": put("format", value="label-dp-message/0"),
    "a version with a point": put("format", value="label-dp-message/1.0"),
    "a version in other digits": put("format", value="label-dp-message/\u0661"),
    "a format as an object": put("format", value={"name": "label-dp-message", "major": 1}),
    "no version": drop("format"),
    "no word on clipping": drop("clipping"),
    "no δ spent": drop("delta_spent"),
    "more δ spent than the lifetime": put("delta_spent", value="0.1"),
    "δ in another spelling": put("delta_lifetime", value="0.10"),
    "δ of its own": put(
        "epsilon", value={"clip": "0", "prior": "0.1", "randomize": "1", "total": "1.1", "delta": "0.1"}
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_manifest_is_refused(name: str) -> None:
    with pytest.raises(MalformedManifest) as refusal:
        read(changed(BROKEN[name]))
    assert refusal.value.code == "malformed-manifest"
    assert refusal.value.detail.endswith((".", ".)"))
    assert "http" not in refusal.value.detail


@pytest.mark.parametrize(
    "name",
    [
        "../message.parquet",
        "a/b",
        "a\\b",
        "/etc/passwd",
        "..",
        ".",
        ".hidden",
        "",
        "a b",
        "a\n",
        "a\x00",
        "-rf",
        "é",
        "C:x",
        "x" * 129,
        "manifest.dsse.json",
    ],
)
def test_file_names_with_tricks_are_refused(name: str) -> None:
    with pytest.raises(MalformedManifest):
        read(changed(put("files", 0, "name", value=name)))


@pytest.mark.parametrize("name", ["message.parquet", "message-00001.parquet", "A_b-c.1", "x" * 128])
def test_plain_file_names_are_accepted(name: str) -> None:
    assert read(changed(put("files", 0, "name", value=name))).message_files[0].name == name


@pytest.mark.parametrize("data", [None, [], 1, "x", {}, {"format": None}, {"format": "label-dp-message"}])
def test_what_is_no_manifest_is_refused(data: Any) -> None:
    with pytest.raises(MalformedManifest):
        read(data)


def test_a_newer_version_is_refused_with_what_to_do() -> None:
    with pytest.raises(UnsupportedVersion) as refusal:
        read({"format": "label-dp-message/2", "everything": "else"})
    assert "label-dp-message/2" in refusal.value.detail
    assert "upgrade" in refusal.value.detail


def test_more_than_one_mebibyte_is_refused_before_it_is_parsed() -> None:
    payload = canonical_bytes(changed(put("randomness", value="x" * MAX_BYTES)))
    with pytest.raises(MalformedManifest, match="larger"):
        Manifest.from_payload(payload)
    manifest = read(document()).model_copy(update={"randomness": "x" * MAX_BYTES})
    with pytest.raises(MalformedManifest, match="larger"):
        manifest.payload()


def test_the_limit_itself_is_accepted() -> None:
    room = MAX_BYTES - len(canonical_bytes(changed(put("randomness", value=""))))
    payload = canonical_bytes(changed(put("randomness", value="x" * room)))
    assert len(payload) == MAX_BYTES
    assert Manifest.from_payload(payload).n == 10


def test_several_parts_add_up() -> None:
    part = document()["files"][0]
    parts = [part | {"name": f"message-{i:05d}.parquet", "rows": rows} for i, rows in enumerate((4, 4, 2))]
    assert len(read(changed(put("files", value=parts))).message_files) == 3
    with pytest.raises(MalformedManifest):
        read(changed(put("files", value=parts[:2])))


def test_a_channel_of_exactly_its_epsilon_passes_and_one_nano_less_fails() -> None:
    channel = one_bit_channel(DOMAIN, Epsilon.parse("0.7"))
    exact = channel.epsilon
    assert exact <= Epsilon.parse("0.7")
    for randomize, good in ((exact, True), (Epsilon(exact.nano - 1), False)):
        total = str(Epsilon.parse("0.1") + randomize)
        data = changed(put("channel", value=channel.as_json()))
        data |= {"epsilon_spent": total, "mechanism": {"name": "one-bit", "why": ""}}
        data["epsilon"] |= {"randomize": str(randomize), "total": total}
        if good:
            assert math.isclose(float(read(data).epsilon.randomize), 0.7, abs_tol=1e-6)
        else:
            with pytest.raises(MalformedManifest, match="does not keep the ε"):
                read(data)
