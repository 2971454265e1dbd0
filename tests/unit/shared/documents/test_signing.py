"""Signatures over exact bytes: one key, one type, one spelling, one signature."""

from __future__ import annotations

import base64
import json
import multiprocessing
import stat
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from label_dp.documents.canonical import canonical_bytes
from label_dp.documents.signing import EXPORT_TYPE, MANIFEST_TYPE, SigningKey, VerifyingKey, open_envelope, pae
from label_dp.errors import InvalidFile, LabelDPError, MalformedManifest, SignatureInvalid
from labels_party.storage.files import Home

KEY = SigningKey(ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
DOCUMENT = {"text": "ε", "n": 1}
ENVELOPE = KEY.sign(MANIFEST_TYPE, DOCUMENT)


def opened(envelope: bytes, key: VerifyingKey = KEY.public, kind: str = MANIFEST_TYPE, limit: int = 1 << 20) -> bytes:
    return open_envelope(envelope, key, kind, max_bytes=limit)


def changed(**members: Any) -> bytes:
    return canonical_bytes(json.loads(ENVELOPE) | members)


def test_a_signed_document_opens_to_its_exact_bytes() -> None:
    assert opened(ENVELOPE) == canonical_bytes(DOCUMENT)


def test_the_encoding_counts_bytes_not_characters() -> None:
    assert pae("ε", b"abc") == b"DSSEv1 2 \xce\xb5 3 abc"
    assert pae("application/x", b"") == b"DSSEv1 13 application/x 0 "


def test_signing_is_deterministic() -> None:
    assert KEY.sign(MANIFEST_TYPE, DOCUMENT) == ENVELOPE


def test_another_key_is_refused_by_its_id_and_by_its_signature() -> None:
    other = SigningKey.generate()
    with pytest.raises(SignatureInvalid, match="another signing key"):
        opened(ENVELOPE, other.public)
    signatures = [json.loads(other.sign(MANIFEST_TYPE, DOCUMENT))["signatures"][0] | {"keyid": KEY.public.id}]
    with pytest.raises(SignatureInvalid, match="does not verify"):
        opened(changed(signatures=signatures))


def test_another_type_is_refused_even_with_its_name_changed() -> None:
    export = KEY.sign(EXPORT_TYPE, DOCUMENT)
    with pytest.raises(SignatureInvalid, match="not of type"):
        opened(export)
    renamed = canonical_bytes(json.loads(export) | {"payloadType": MANIFEST_TYPE})
    with pytest.raises(SignatureInvalid, match="does not verify"):
        opened(renamed)


def test_a_changed_payload_is_refused() -> None:
    payload = base64.b64encode(canonical_bytes(DOCUMENT | {"n": 2})).decode()
    with pytest.raises(SignatureInvalid):
        opened(changed(payload=payload))


def test_no_and_two_signatures_are_refused_even_if_both_are_good() -> None:
    good = json.loads(ENVELOPE)["signatures"][0]
    for signatures in (
        [],
        [good, good],
        [good, json.loads(SigningKey.generate().sign(MANIFEST_TYPE, 1))["signatures"][0]],
    ):
        with pytest.raises(MalformedManifest, match="exactly one signature"):
            opened(changed(signatures=signatures))


def _malleable(text: str) -> list[str]:
    """Other spellings that a lenient base64 decoder takes for the same bytes."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    body = text.rstrip("=")
    last = alphabet[(alphabet.index(body[-1]) & 0b111100) | 0b11]  # bits that padding throws away
    return [
        body,
        text + "=",
        text + "\n",
        " " + text,
        text[:4] + "\n" + text[4:],
        text[:4] + "!" + text[4:],
        body[:-1] + last + "=" * (len(text) - len(body)),
        text.replace("+", "-").replace("/", "_") + ("" if "+" in text or "/" in text else "_"),
    ]


@pytest.mark.parametrize("index", range(8))
def test_base64_has_one_spelling(index: int) -> None:
    envelope = json.loads(ENVELOPE)
    sig = envelope["signatures"][0]
    assert sig["sig"].endswith("==")
    with pytest.raises(MalformedManifest):
        opened(changed(signatures=[sig | {"sig": _malleable(sig["sig"])[index]}]))
    with pytest.raises(MalformedManifest):
        opened(changed(payload=_malleable(base64.b64encode(b"1234").decode())[index]))


@pytest.mark.parametrize(
    "envelope",
    [
        ENVELOPE + b"\n",
        ENVELOPE + b"\0",
        ENVELOPE + ENVELOPE,
        b" " + ENVELOPE,
        b"\xef\xbb\xbf" + ENVELOPE,
        ENVELOPE.replace(b'"payloadType"', b'"payload":"","payloadType"'),
        ENVELOPE.replace(b",", b", "),
        ENVELOPE[:-1],
        b"",
        b"{}",
        b"[]",
        b"null",
        b"[" * 50_000,
        changed(extra=1),
        changed(signatures="x"),
        changed(signatures=[None]),
        changed(signatures=[{"keyid": "x"}]),
        changed(payload=None),
        changed(payload=5),
        changed(signatures=[json.loads(ENVELOPE)["signatures"][0] | {"sig": 5}]),
        changed(signatures=[json.loads(ENVELOPE)["signatures"][0] | {"extra": ""}]),
    ],
)
def test_what_is_not_the_canonical_envelope_is_refused(envelope: bytes) -> None:
    with pytest.raises(MalformedManifest):
        opened(envelope)


@pytest.mark.parametrize("kind", [None, 5, ["x"], ""])
def test_a_type_of_another_kind_is_refused(kind: object) -> None:
    with pytest.raises(SignatureInvalid):
        opened(changed(payloadType=kind))


def test_every_flipped_bit_of_an_envelope_is_refused() -> None:
    for position in range(len(ENVELOPE)):
        for bit in range(8):
            flipped = bytearray(ENVELOPE)
            flipped[position] ^= 1 << bit
            with pytest.raises((MalformedManifest, SignatureInvalid)):
                opened(bytes(flipped))


def test_size_is_checked_before_anything_is_parsed() -> None:
    with pytest.raises(MalformedManifest, match="larger"):
        opened(b"[" * 100, limit=99)


# --- key files ---------------------------------------------------------------------------------------------


def test_the_private_key_file_is_the_owners_alone_and_is_never_overwritten(tmp_path: Path) -> None:
    private, public = tmp_path / "keys" / "signing.key", tmp_path / "keys" / "signing.pub"
    KEY.save(private, public)
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert stat.S_IMODE(private.parent.stat().st_mode) == 0o700
    assert SigningKey.load(private).public.id == KEY.public.id == VerifyingKey.load(public).id
    before = private.read_bytes()
    with pytest.raises(FileExistsError):
        SigningKey.generate().save(private, public)
    assert private.read_bytes() == before
    assert sorted(p.name for p in private.parent.iterdir()) == ["signing.key", "signing.pub"]


def test_no_text_of_a_key_shows_its_secret() -> None:
    raw = KEY.key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    shown = repr(KEY) + str(KEY) + f"{KEY!r}" + repr({"key": KEY}) + str([KEY])
    assert KEY.public.id in shown
    assert raw.hex() not in shown
    assert base64.b64encode(raw).decode() not in shown


def _other_keys() -> dict[str, bytes]:
    curve = ec.generate_private_key(ec.SECP256R1())
    sealed = BestAvailableEncryption(b"pass")
    return {
        "empty": b"",
        "text": b"not a key",
        "half": KEY.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())[:60],
        "curve": curve.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        "sealed": KEY.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, sealed),
        "public curve": curve.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
    }


@pytest.mark.parametrize("name", _other_keys())
def test_a_file_that_is_no_ed25519_key_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(_other_keys()[name])
    with pytest.raises(InvalidFile):
        SigningKey.load(path)
    with pytest.raises(InvalidFile):
        VerifyingKey.load(path)


def test_a_private_key_is_no_public_one_and_missing_files_are_named(tmp_path: Path) -> None:
    KEY.save(tmp_path / "a.key", tmp_path / "a.pub")
    with pytest.raises(InvalidFile):
        VerifyingKey.load(tmp_path / "a.key")
    for load in (SigningKey.load, VerifyingKey.load):
        with pytest.raises(InvalidFile, match="absent"):
            load(tmp_path / "absent")


def _first_start(folder: str, results: Any) -> None:
    try:
        home = Home(Path(folder))
        home.prepare()
        results.put((home.own_key().public.id, home.secrets().derive("x").hex()))
    except LabelDPError as error:
        results.put((type(error).__name__, error.detail))


@pytest.mark.processes
def test_processes_that_start_together_agree_on_the_keys(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    started = [context.Process(target=_first_start, args=(str(tmp_path / "home"), results)) for _ in range(8)]
    for process in started:
        process.start()
    for process in started:
        process.join()
    found = {results.get() for _ in started}
    assert len(found) == 1
    home = Home(tmp_path / "home")
    assert VerifyingKey.load(home.public_key).id == home.own_key().public.id == found.pop()[0]
