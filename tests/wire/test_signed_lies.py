"""What a malicious labels party may sign: manifests that trick, names that climb, Parquet that lies or expands.

A signature makes none of it true. Whatever it is, the reader refuses it with a sentence (or reads just the rows that
the honest message has), in bounded memory, and lives on. The long version is `tests/soak/soak_tampering.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared import errors
from shared.message.bundle import FOLDER_ENVELOPE, trusted_manifest, verify
from shared.message.canonical import canonical_bytes
from shared.message.signing import VerifyingKey
from tests.support import malice
from tests.support.contained import Told, contained
from tests.support.features_cli import Shell
from tests.support.messages import Sender
from tests.support.tampering import ME, payload_of, sealed

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
    trusted_manifest(sealed(payload, sender.key), key, ME)
    texts = respelled(payload)
    assert payload not in texts.values()
    for text in texts.values():
        with pytest.raises(errors.VerificationFailed):
            trusted_manifest(sealed(text, sender.key), key, ME)


def test_what_is_larger_than_an_envelope_is_not_read(good: Path, hostile: Path, key: VerifyingKey) -> None:
    path = hostile / "aaa" / FOLDER_ENVELOPE
    with path.open("ab") as file:
        file.truncate(1 << 40)  # a hole: takes no disk
    with pytest.raises(errors.MalformedManifest, match="larger"):
        verify(hostile / "aaa", key, ME)


VERSIONS: list[tuple[Any, type[errors.LabelDPError]]] = [
    ({"major": 2, "minor": 0}, errors.UnsupportedVersion),
    ({"major": 2, "minor": 99}, errors.UnsupportedVersion),
    ({"major": (1 << 53) - 1, "minor": 0}, errors.UnsupportedVersion),
    ({"major": 0, "minor": 9}, errors.MalformedManifest),
    ({"major": -1, "minor": 0}, errors.MalformedManifest),
    ({"major": 1, "minor": -1}, errors.MalformedManifest),
    ({"major": True, "minor": 0}, errors.MalformedManifest),
    ({"major": "1", "minor": 0}, errors.MalformedManifest),
    ({"major": None, "minor": 0}, errors.MalformedManifest),
    ({"major": [1], "minor": 0}, errors.MalformedManifest),
    ({"major": 1}, errors.MalformedManifest),
    ({"name": "label-dp-message\u200b", "major": 1, "minor": 0}, errors.MalformedManifest),
    ({"name": "label-dp-audit", "major": 1, "minor": 0}, errors.MalformedManifest),
]


@pytest.mark.parametrize(("version", "refusal"), VERSIONS)
def test_versions(
    version: dict[str, Any], refusal: type[errors.LabelDPError], good: Path, sender: Sender, key: VerifyingKey
) -> None:
    document = json.loads(payload_of(good))
    text = canonical_bytes(document | {"format": {"name": "label-dp-message"} | version})
    with pytest.raises(refusal) as caught:
        trusted_manifest(sealed(text, sender.key), key, ME)
    if refusal is errors.UnsupportedVersion:
        assert "upgrade" in caught.value.detail
        assert caught.value.exit_code == 1


def test_an_older_and_a_newer_minor_version_are_read(good: Path, sender: Sender, key: VerifyingKey) -> None:
    document = json.loads(payload_of(good))
    for minor, more in ((0, {}), (1, {}), (7, {"more": {"deep": [1]}})):
        text = canonical_bytes(document | {"format": document["format"] | {"minor": minor}} | more)
        assert trusted_manifest(sealed(text, sender.key), key, ME)[0].n == 60
    text = canonical_bytes(document | {"more": 1})  # of our own version, a member more is a mistake or a trick
    with pytest.raises(errors.MalformedManifest):
        trusted_manifest(sealed(text, sender.key), key, ME)


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

NAMES = ["", ".", "..", "../x", "a/b", "/etc/passwd", "a\\b", "C:\\x", "x\0y", "x\n", " x", "x ", ".hidden", "-rf", "~"]
NAMES += ["\u202ex", "x\u200b", "caf\u00e9", "cafe\u0301", "x" * 129, "a:b", "a*", "$HOME", "%2e%2e", "\uff0e\uff0e/x"]
NAMES += [FOLDER_ENVELOPE, "MANIFEST.DSSE.JSON", "envelope.dsse.json", "x.dsse.json", "prior.parquet", "PRIOR.parquet"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_not_plain_or_not_its_own(name: str, good: Path, sender: Sender, key: VerifyingKey) -> None:
    document = json.loads(payload_of(good))
    document["files"][0]["name"] = name
    with pytest.raises(errors.MalformedManifest):
        trusted_manifest(sealed(canonical_bytes(document), sender.key), key, ME)


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
    "an audience twice": lambda d: d.update(audiences=[ME, ME]),
    "an audience in a list": lambda d: d.update(audiences=[[ME]]),
    "an audience as an object": lambda d: d.update(audiences={ME: 1}),
    "a release that climbs": lambda d: d.update(release="../../etc"),
    "a release of dots and a line end": lambda d: d.update(release="rel_1\n"),
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
        trusted_manifest(sealed(canonical_bytes(document), sender.key), key, ME)
