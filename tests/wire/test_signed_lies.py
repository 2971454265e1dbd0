"""What a malicious labels party may sign: manifests that trick, names that climb, Parquet that lies or expands.

A signature makes none of it true. Whatever it is, the reader refuses it with a sentence (or reads just the rows that
the honest message has), in bounded memory, and lives on. The long version is `tests/soak/soak_tampering.py`.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from label_dp import errors
from label_dp.documents.bundle import FOLDER_ENVELOPE, verify
from label_dp.documents.canonical import canonical_bytes
from label_dp.documents.manifest import Manifest
from label_dp.documents.signing import VerifyingKey
from tests.support import malice
from tests.support.contained import Told, contained
from tests.support.features_cli import Shell
from tests.support.golden_documents import documents
from tests.support.messages import Sender
from tests.support.tampering import ME, payload_of, sealed
from tests.support.verdicts import ACCEPTED, verdicts

MOST_GROWN = 128  # MiB of address space that reading all of them may add; the lies claim up to 16 GB
MOST_FOR_DOMAINS = 1024  # a domain of 2^24 values is legal and takes 128 MiB for each array over it
SLOW = ("a domain of huge steps", "a domain of long decimals")  # ten seconds each: in the soak
FINE = ("as the honest one", "malformed-manifest")


@pytest.fixture(scope="module")
def good(sender: Sender, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return malice.honest(sender, tmp_path_factory.mktemp("signed") / "honest")


@pytest.fixture(scope="module")
def files(good: Path) -> list[tuple[str, bytes]]:
    return list(malice.hostile_messages(good))


@pytest.fixture
def hostile(good: Path, tmp_path: Path) -> Path:
    """Where signed lies go; the honest message comes first by name."""
    (tmp_path / "all" / "aaa").mkdir(parents=True)
    for path in good.iterdir():
        (tmp_path / "all" / "aaa" / path.name).write_bytes(path.read_bytes())
    return tmp_path / "all"


def wrong(told: list[Told], names: dict[str, str], fine: tuple[str, ...] = FINE) -> list[str]:
    return [f"{names[t.name]}: {t.outcome}" for t in told if t.name in names and t.outcome not in fine]


# --- Parquet -------------------------------------------------------------------------------------------------


@pytest.mark.processes
def test_no_file_passes_crashes_or_expands(
    good: Path, hostile: Path, sender: Sender, files: list[tuple[str, bytes]]
) -> None:
    names = malice.sign_all(good, files, "message", sender.key, hostile)
    names |= malice.sign_all(good, malice.hostile_priors(good), "prior", sender.key, hostile)
    status, told = contained(hostile, sender.public_key(hostile.parent))
    assert status == 0
    assert told[0].outcome == "as the honest one"
    assert wrong(told, names) == []
    assert len(told) == 1 + len(names)
    assert sum(t.outcome == "malformed-manifest" for t in told) >= 250
    assert sum(t.grown for t in told) < MOST_GROWN, [t for t in told if t.grown > 8]
    assert max(t.resident for t in told) < MOST_GROWN


@pytest.mark.processes
@pytest.mark.parametrize("planted", ["check_sizes", "_check_rows"])
def test_a_reader_that_skips_a_check_is_caught(
    planted: str, good: Path, hostile: Path, sender: Sender, files: list[tuple[str, bytes]]
) -> None:
    lies = ("two gigabytes decompressed", "another column's name", "rows: labels of another bin")
    few = [(name, data) for name, data in files if any(lie in name for lie in lies)]
    names = malice.sign_all(good, few, "message", sender.key, hostile)
    status, told = contained(hostile, sender.public_key(hostile.parent), planted)
    assert status == 0
    if planted == "check_sizes":
        assert sum(t.grown for t in told) > 1024
        assert max(t.resident for t in told) > MOST_GROWN
    else:
        assert any("taken" in line for line in wrong(told, names))


@pytest.mark.processes
def test_costly_manifests_in_bounded_memory(good: Path, hostile: Path, sender: Sender) -> None:
    names = malice.sign_documents(good, sender.key, hostile, without=SLOW)
    status, told = contained(hostile, sender.public_key(hostile.parent))
    assert status == 0
    assert len(told) == 1 + len(names)
    assert not [t for t in told if t.outcome.startswith("escaped")]
    assert sum(t.grown for t in told) < MOST_FOR_DOMAINS


# --- the manifest as text --------------------------------------------------------------------------------------


def respelled(payload: bytes) -> dict[str, bytes]:
    """Other texts of the same document, or what some reader takes for it; all correctly signed."""
    text, document = payload.decode(), json.loads(payload)
    first = text.index('"audiences"')
    return {
        "spaces": json.dumps(document, sort_keys=True, ensure_ascii=False).encode(),
        "a line end": payload + b"\n",
        "a byte order mark": b"\xef\xbb\xbf" + payload,
        "UTF-16": text.encode("utf-16"),
        "another order": json.dumps(dict(reversed(document.items())), separators=(",", ":")).encode(),
        "an escaped name": text.replace('"batch"', '"\\u0062atch"').encode(),
        "escaped text": json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        .replace("\\u03b5", "\\u03B5")
        .encode(),
        "an escaped slash": text.replace("random bits", "random\\/bits").encode(),
        "a member twice": (text[:first] + '"audiences":["mallory"],' + text[first:]).encode(),
        "a member twice, last": (text[:-1] + ',"audiences":["mallory"]}').encode(),
        "a member twice, escaped": (text[:first] + '"\\u0061udiences":["mallory"],' + text[first:]).encode(),
        "n as a float": text.replace('"n":60', '"n":60.0').encode(),
        "n with an exponent": text.replace('"n":60', '"n":6e1').encode(),
        "n below zero": text.replace('"n":60', '"n":-0').encode(),
        "n with a zero": text.replace('"n":60', '"n":060').encode(),
        "n of 100,000 digits": text.replace('"n":60', '"n":' + "6" * 100_000).encode(),
        "n of 54 bits": text.replace('"n":60', '"n":18014398509481984').encode(),
        "n as text": text.replace('"n":60', '"n":"60"').encode(),
        "n as true": text.replace('"n":60', '"n":true').encode(),
        "NaN": text.replace('"n":60', '"n":NaN').encode(),
        "half a character": text.replace("shop", "\\ud800").encode(),
        "half a character, raw": payload.replace(b"shop", b"\xed\xa0\x80"),
        "an overlong slash": payload.replace(b"shop", b"\xc0\xaf"),
        "a zero byte": payload.replace(b"shop", b"\0"),
        "cut": payload[:-1],
        "twice": payload + payload,
        "a list of it": b"[" + payload + b"]",
        "nothing": b"",
        "null": b"null",
        "lists in lists": b"[" * 100_000,
        "objects in objects": b'{"a":' * 100_000,
        "as deep as read": b"[" * 900 + b"]" * 900,
        "a comment": b"/**/" + payload,
        "single quotes": text.replace('"', "'").encode(),
        "larger than allowed": canonical_bytes(document | {"more": "x" * (1 << 20)}),
    }


def test_one_spelling_only(good: Path, sender: Sender, key: VerifyingKey) -> None:
    payload = payload_of(good)
    Manifest.trusted(sealed(payload, sender.key), key, ME)
    texts = respelled(payload)
    assert payload not in texts.values()
    for text in texts.values():
        with pytest.raises(errors.VerificationFailed):
            Manifest.trusted(sealed(text, sender.key), key, ME)


def test_what_is_larger_than_an_envelope_is_not_read(good: Path, hostile: Path, key: VerifyingKey) -> None:
    path = hostile / "aaa" / FOLDER_ENVELOPE
    with path.open("ab") as file:
        file.truncate(1 << 40)  # a hole: takes no disk
    with pytest.raises(errors.MalformedManifest, match="larger"):
        verify(hostile / "aaa", key, ME)


VERSIONS: list[tuple[Any, type[errors.LabelDPError]]] = [
    ("label-dp-message/2", errors.UnsupportedVersion),
    ("label-dp-message/99", errors.UnsupportedVersion),
    ("label-dp-message/999999999", errors.UnsupportedVersion),
    ("label-dp-message/9999999999", errors.MalformedManifest),
    ("label-dp-message/0", errors.MalformedManifest),
    ("label-dp-message/-1", errors.MalformedManifest),
    ("label-dp-message/01", errors.MalformedManifest),
    ("label-dp-message/1.0", errors.MalformedManifest),
    ("label-dp-message/\u0662", errors.MalformedManifest),
    ("label-dp-message/2\n", errors.MalformedManifest),
    ("label-dp-message", errors.MalformedManifest),
    ("label-dp-message\u200b/1", errors.MalformedManifest),
    ("label-dp-audit/1", errors.MalformedManifest),
    ({"name": "label-dp-message", "major": 2, "minor": 0}, errors.MalformedManifest),
    (True, errors.MalformedManifest),
    (None, errors.MalformedManifest),
    ([1], errors.MalformedManifest),
]


@pytest.mark.parametrize(("version", "refusal"), VERSIONS)
def test_versions(
    version: Any, refusal: type[errors.LabelDPError], good: Path, sender: Sender, key: VerifyingKey
) -> None:
    document = json.loads(payload_of(good))
    text = canonical_bytes(document | {"format": version})
    with pytest.raises(refusal) as caught:
        Manifest.trusted(sealed(text, sender.key), key, ME)
    if refusal is errors.UnsupportedVersion:
        assert "upgrade" in caught.value.detail
        assert caught.value.exit_code == 1


def test_a_member_more_is_a_mistake_or_a_trick(good: Path, sender: Sender, key: VerifyingKey) -> None:
    text = canonical_bytes(json.loads(payload_of(good)) | {"more": 1})
    with pytest.raises(errors.MalformedManifest):
        Manifest.trusted(sealed(text, sender.key), key, ME)


def test_a_refusal_obeys_nobody_at_the_terminal(good: Path, sender: Sender, tmp_path: Path) -> None:
    """Names inside a signed document are told in one line, without what a terminal would act upon."""
    shell, public, document = Shell(tmp_path), sender.public_key(tmp_path), json.loads(payload_of(good))
    trick = "\x1b[2J\nVerified message" + "x" * 5000
    for changed in (document | {trick: 1}, document | {"epsilon": document["epsilon"] | {trick: 1}}):
        path = tmp_path / "message"
        path.mkdir(exist_ok=True)
        (path / FOLDER_ENVELOPE).write_bytes(sealed(canonical_bytes(changed), sender.key))
        told = shell.refused("verify", path, "--labels-key", public, code=1)
        assert told.removesuffix("\n").isprintable()
        assert len(told) < 300


# --- names of files ----------------------------------------------------------------------------------------------

GOLDEN = documents()
NAMES = ["", ".", "..", "../x", "a/b", "/etc/passwd", "a\\b", "C:\\x", "x\0y", "x\n", " x", "x ", ".hidden", "-rf", "~"]
NAMES += ["\u202ex", "x\u200b", "caf\u00e9", "cafe\u0301", "x" * 129, "a:b", "a*", "$HOME", "%2e%2e", "\uff0e\uff0e/x"]
NAMES += [FOLDER_ENVELOPE, "MANIFEST.DSSE.JSON", "envelope.dsse.json", "x.dsse.json", "prior.parquet", "PRIOR.parquet"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_not_plain_or_not_its_own(name: str, good: Path, sender: Sender, key: VerifyingKey) -> None:
    document = json.loads(payload_of(good))
    document["files"][0]["name"] = name
    with pytest.raises(errors.MalformedManifest):
        Manifest.trusted(sealed(canonical_bytes(document), sender.key), key, ME)


Change = Callable[[dict[str, Any]], object]
TRICKS: dict[str, Change] = {
    "no files": lambda d: d.update(files=[]),
    "two priors": lambda d: d["files"].append(d["files"][1] | {"name": "second.parquet"}),
    "a prior alone": lambda d: d.update(files=d["files"][1:]),
    "an unknown role": lambda d: d["files"][0].update(role="programme"),
    "an upper case digest": lambda d: d["files"][0].update(sha256=d["files"][0]["sha256"].upper() + ""),
    "rows that do not add up": lambda d: d["files"][0].update(rows=59),
    "rows that add up below zero": lambda d: d.update(
        files=[d["files"][0] | {"rows": 61}, d["files"][0] | {"rows": -1, "name": "b.parquet"}]
    ),
    "more bytes than rows can take": lambda d: d["files"][0].update(bytes=(1 << 18) + 560 * d["files"][0]["rows"] + 1),
    "a petabyte": lambda d: d["files"][0].update(bytes=1 << 50),
    "a prior larger than its domain": lambda d: d["files"][1].update(rows=1 << 30),
    "a prior of a petabyte": lambda d: d["files"][1].update(bytes=1 << 50),
    "an audience twice": lambda d: d.update(audiences=[ME, ME]),
    "an audience in a list": lambda d: d.update(audiences=[[ME]]),
    "an audience as an object": lambda d: d.update(audiences={ME: 1}),
    "a release that climbs": lambda d: d.update(id="../../etc"),
    "a release of dots and a line end": lambda d: d.update(id="rel_1\n"),
    "a date that is none": lambda d: d.update(created="\u0662\u0660\u0662\u0664-01-01"),
    "ε in other digits": lambda d: d.update(epsilon_lifetime="\u0661\u0660"),
    "ε below zero": lambda d: d.update(epsilon_spent="-1"),
    "ε that is no number": lambda d: d.update(epsilon_spent="NaN"),
    "ε without end": lambda d: d.update(epsilon_lifetime="Infinity"),
    "δ": lambda d: d["epsilon"].update(delta="-0.1"),
    "more ε than its lifetime": lambda d: d.update(epsilon_lifetime="1"),
    "parts that do not add up": lambda d: d["epsilon"].update(prior="0.5"),
    "less noise than it states": lambda d: d["channel"].update(B="1", A=str((1 << 64) - 1)),
    "an unknown channel": lambda d: d["channel"].update(kind="identity"),
    "a channel with more": lambda d: d["channel"].update(more="1"),
    "the key of somebody else": lambda d: d.update(key_id="ed25519:" + "0" * 64),
}


@pytest.mark.parametrize("name", TRICKS)
def test_a_manifest_that_contradicts_itself(name: str, good: Path, sender: Sender, key: VerifyingKey) -> None:
    document = json.loads(payload_of(good))
    TRICKS[name](document)
    with pytest.raises(errors.VerificationFailed):
        Manifest.trusted(sealed(canonical_bytes(document), sender.key), key, ME)


# --- what one of the two verifiers took, and the other did not -----------------------------------------------------


def _spent(d: dict[str, Any], less: str) -> None:
    d["epsilon"] |= {"randomize": less, "total": less}


def _not_found(result: dict[str, Any]) -> None:
    result["found"] = False
    result["sides"][0] |= {"first": None, "from": None}


def _without(d: dict[str, Any], *path: str) -> None:
    *outer, last = path
    for name in outer:
        d = d[name]
    del d[last]


BOTH: dict[str, tuple[str, Change]] = {
    "audiences as a string": ("message: bins", lambda d: d.update(audiences=f"{ME} and others")),
    "audiences of an answer as a string": ("median: ranks", lambda d: d.update(audiences=ME)),
    "an ε per unit of two examples for three": ("message: unit", lambda d: d["unit"].update(epsilon_per_unit="5.3")),
    "an ε per unit that nobody can spend": ("message: unit", lambda d: d["unit"].update(epsilon_per_unit="30.3")),
    "an ε per unit between two ε": ("message: unit", lambda d: d["unit"].update(epsilon_per_unit="7.950000001")),
    "more examples beyond the bound of a unit than there are": (
        "message: unit",
        lambda d: d.update(missing_label="0", unit=d["unit"] | {"examples_beyond": d["n"] + 1}),
    ),
    "an example beyond the bound of a unit that counts as nothing": (
        "message: unit",
        lambda d: d.update(missing_label=None, unit=d["unit"] | {"examples_beyond": 1}),
    ),
    "a unit that says nothing of what is beyond its bound": (
        "message: unit",
        lambda d: d["unit"].update(examples_beyond=None),
    ),
    "an example that is the unit, and is beyond its bound": (
        "message: bins",
        lambda d: d["unit"].update(examples_beyond=0),
    ),
    "a unit without an ε": ("message: unit", lambda d: d["unit"].update(epsilon_per_unit=None)),
    "a unit without a column": ("calibration: grid of two", lambda d: d["unit"].update(column=None)),
    "an example with a column": ("message: bins", lambda d: d["unit"].update(column="person")),
    "another adjacency": ("message: bins", lambda d: d.update(adjacency="add or remove one example")),
    "another adjacency of an answer": ("rectangle: ranks", lambda d: d.update(adjacency="replace one label")),
    "the adjacency of another kind": (
        "prediction: average",
        lambda d: d.update(adjacency="replace one example's label"),
    ),
    "a member more in a channel": ("message: one bit", lambda d: d["channel"].update(more="1")),
    "a member less in a channel": ("message: knots", lambda d: _without(d, "channel", "residual_bias")),
    "another residual bias": ("message: knots", lambda d: d["channel"].update(residual_bias="0.0")),
    "two priors": ("message: bins", lambda d: d["files"].append(d["files"][-1] | {"name": "second.parquet"})),
    "outputs that fall": ("message: bins", lambda d: d["channel"]["outputs"].reverse()),
    "an output that is no number": ("message: bins", lambda d: d["channel"]["outputs"].__setitem__(0, "nan")),
    "outputs of a table that fall": ("message: dense", lambda d: d["channel"]["outputs"].reverse()),
    "a bin's mean elsewhere": ("message: bins", lambda d: d["channel"]["bin_means"].__setitem__(0, "9.0")),
    "bounds in another spelling": ("message: bounds", lambda d: d["clipping"].update(bounds=["10.0"])),
    "a clipping by another mechanism": ("message: bounds", lambda d: d["clipping"].update(mechanism="maximum")),
    "a version with a point": ("message: bounds", lambda d: d.update(format="label-dp-message/1.1")),
    "no word on clipping": ("message: bins", lambda d: _without(d, "clipping")),
    "no word on randomness": ("message: bins", lambda d: _without(d, "randomness")),
    "no unit": ("message: bins", lambda d: _without(d, "unit")),
    "no format": ("median: ranks", lambda d: _without(d, "format")),
    "no salt": ("median: ranks", lambda d: _without(d, "salt")),
    "no word on a second score": ("calibration: float32", lambda d: _without(d, "parameters", "scores_2")),
    "no δ spent": ("median: ranks", lambda d: _without(d, "delta_spent")),
    "no source of the mechanism": ("median: ranks", lambda d: _without(d, "mechanism", "source")),
    "a member more in the population": ("median: ranks", lambda d: d["population"].update(more=1)),
    "ε as 01.3": ("message: bins", lambda d: d.update(epsilon_spent="03.5")),
    "ε as 1.30": ("message: bins", lambda d: d.update(epsilon_spent="3.50")),
    "a part of ε as 2.0": ("median: ranks", lambda d: _spent(d, "4.0")),
    "lifetime ε beyond all": ("message: bins", lambda d: d.update(epsilon_lifetime="1000001")),
    "δ as 0.0": ("median: ranks", lambda d: d.update(delta_spent="0.0")),
    "a δ of a message": ("message: lifetime δ", lambda d: d["epsilon"].update(delta="0.0000001")),
    "a δ where there is no lifetime δ": (
        "message: lifetime δ",
        lambda d: d.update(delta={"spent": "0", "lifetime": "0"}),
    ),
    "a prior that was estimated for nothing": (
        "message: bins",
        lambda d: d["epsilon"].update(prior="0", randomize="2.01"),
    ),
    "a linear model of steps that cost more": ("linear model: easiest", lambda d: _spent(d, "0.5")),
    "a linear model a hair below its cost": ("linear model: easiest", lambda d: _spent(d, "3.99999999")),
    "a linear model of larger steps": (
        "linear model: easiest",
        lambda d: d["parameters"].update(epsilon_per_step="1.4"),
    ),
    "a linear model of more steps": ("linear model: easiest", lambda d: d["parameters"].update(steps=4)),
    "a linear model in another order": ("linear model: uniform", lambda d: d["parameters"].update(rule="hardest")),
    "ρ that fall": ("linear model: noisy", lambda d: d["parameters"]["rho"].append("1")),
    "no ρ": ("linear model: noisy", lambda d: d["parameters"].update(rho=[])),
    "ρ beyond all numbers": ("linear model: noisy", lambda d: d["parameters"].update(rho=["9" * 60])),
    "another bound": ("linear model: advanced", lambda d: d["parameters"].update(bound="composition")),
    "a rectangle of more sides": (
        "rectangle: ranks",
        lambda d: d["parameters"]["features"].append({"name": "z", "range": ["0", "1"]}),
    ),
    "a rectangle of dearer sides": ("rectangle: ranks", lambda d: d["parameters"].update(epsilon_per_side="1")),
    "a side of an earlier feature": ("rectangle: ranks", lambda d: d["result"]["sides"][0].update(name="A")),
    "a rectangle that costs no δ and was not found": ("rectangle: ranks", lambda d: _not_found(d["result"])),
    "a threshold in another spelling": (
        "rectangle: ranks",
        lambda d: d["parameters"].update(threshold="5.00000000000000000001"),
    ),
    "a side that was not found for free": ("rectangle: ranks", lambda d: d["result"].update(found=False)),
    "a median by slices without δ": ("median: slices", lambda d: d["epsilon"].update(delta="0")),
    "a calibration that clipped": (
        "calibration: monotone",
        lambda d: d["epsilon"].update(clip="0.1", randomize="0.4"),
    ),
    "more pieces than were asked for": ("calibration: pieces", lambda d: d["parameters"]["options"].update(pieces=2)),
    "an option of another shape": ("calibration: monotone", lambda d: d["parameters"]["options"].update(pieces=3)),
    "noise too narrow for ε": ("prediction: average", lambda d: _spent(d, "0.2")),
    "a value that is not drawn": ("prediction: average", lambda d: d["result"].update(value="3.3")),
    "a prediction by another method": ("prediction: average", lambda d: d["mechanism"].update(name="walk")),
    "a prediction by no method": ("prediction: average", lambda d: d["parameters"].update(method="magic")),
    "a class between two": ("prediction: walk", lambda d: d["result"].update(value="0.5")),
}


@pytest.mark.parametrize("name", BOTH)
def test_both_verifiers_refuse(name: str, sender: Sender) -> None:
    kind, change = BOTH[name]
    document = copy.deepcopy(GOLDEN[kind]) | {"key_id": sender.key.public.id}
    assert verdicts(kind, document, sender.key) == (ACCEPTED, ACCEPTED)
    change(document)
    assert ACCEPTED not in verdicts(kind, document, sender.key)
