"""Golden bytes of a message, field by field, and what becomes of a message that somebody touched.

`v1/` holds a message of format label-dp-message/1, under the test key below. It must verify for ever; if a test here
fails, the format has changed, and old messages may no longer be read. `shared/label_dp/documents/FORMAT.md` explains
its bytes.
"""

from __future__ import annotations

import base64
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from label_dp.documents.bundle import open_message, verify
from label_dp.documents.canonical import canonical_bytes
from label_dp.documents.manifest import Manifest
from label_dp.documents.rows import read_message
from label_dp.documents.signing import EXPORT_TYPE, MANIFEST_TYPE, SigningKey, VerifyingKey
from label_dp.errors import (
    AudienceMismatch,
    DigestMismatch,
    InvalidFile,
    MalformedManifest,
    SignatureInvalid,
    VerificationFailed,
)

V1 = Path(__file__).parent / "v1"
KEY = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
ME = "features-party"
BITS = random.Random(17)

PAYLOAD = (
    # what neighbouring data sets are
    b'{"adjacency":"replace one example\'s label"'
    # who may accept the message
    b',"audiences":["features-party","second-party"]'
    b',"batch":"bat_0123456789abcdef01234567"'
    # the first event of the newest day of the labels party's audit chain
    b',"chain_head":{"day":"2026-01-02"'
    b',"digest":"0b1c7a4f5e6d3829a1b0c9d8e7f60514233241506f7e8d9cab0b1c2d3e4f5a69"}'
    # randomized response: weights A (own bin) and B (each other bin) out of N = 2^64, all as decimal strings
    b',"channel":{"A":"13485650502877570762","B":"4961093570831980854","N":"18446744073709551616"'
    # E[label | bin] under the private prior, shortest decimals of doubles
    b',"bin_means":["0.0","1.75"]'
    # bin j holds the domain positions boundaries[j] ... boundaries[j+1] - 1
    b',"boundaries":["0","1","4"]'
    # the value that stands for each bin
    b',"kind":"rr","outputs":["0.5","2.25"]}'
    # bounds that were bought with ε_clip: none
    b',"clipping":null'
    # to the day only
    b',"created":"2026-01-02"'
    # δ that other answers about these examples have spent, and may; a message spends none
    b',"delta_lifetime":"0","delta_spent":"0"'
    # LO:HI:STEP, both ends included; or {"values": [...]}
    b',"domain":{"range":"0:3:1"}'
    b',"domain_source":"declared public by the owner"'
    # the split: its parts add up to the total; decimal strings
    b',"epsilon":{"clip":"0","delta":"0","prior":"0.05","randomize":"1","total":"1.05"}'
    # per example of this batch, this release included
    b',"epsilon_lifetime":"2.5","epsilon_spent":"1.3"'
    # expected, from channel and private prior; never a realised one
    b',"expected_loss":"0.75"'
    # the message in one or more parts, in order, then at most one prior
    b',"files":[{"bytes":1047,"name":"message.parquet","role":"message","rows":23'
    b',"sha256":"63e112bb027a336d51c5cf1d1e64ea8aa7b72c00ea3bd37c4aa03eda3cc0bd43"}'
    b',{"bytes":830,"name":"prior.parquet","role":"prior","rows":4'
    b',"sha256":"8970649face27438c755db93bafcd771ec48821894b63a8bec0cd645d2e4dad2"}]'
    # a reader refuses a newer major version
    b',"format":"label-dp-message/1"'
    # what is released: the id of the message
    b',"id":"rel_0123456789abcdef01234567"'
    # SHA-256 of the raw public key
    b',"key_id":"ed25519:56475aa75463474c0285df5dbf2bcab73da651358839e9b77481b2eab107708c"'
    b',"loss":"squared"'
    b',"mechanism":{"name":"rr-on-bins","why":"asked for by the owner"}'
    # label of listed examples without one; null where there is no such rule
    b',"missing_label":"0"'
    # number of examples: public
    b',"n":23'
    # clip or refuse
    b',"out_of_domain":"clip"'
    # with the rule by which labels were made of events, if they were; text is UTF-8, not escaped
    b',"population":{"events":null,"id":"pop_0123456789abcdef01234567","label":"revenue \xe2\x82\xac"'
    b',"name":"shop orders"}'
    b',"presence":"id list given before labels counted"'
    # where the prior came from, and the release it was carried over from
    b',"prior":{"cells":4,"method":"project","release":null,"source":"estimated"}'
    b',"randomness":"AES-256-CTR keystreams under fresh keys of the operating system, discarded after use: \xce\xb5 is'
    b' exact for ideal random bits and computational for this cipher"'
    # the privacy unit: one example, or all examples of one value of a column
    b',"unit":{"column":null,"epsilon_per_unit":null,"examples_beyond":null,"kind":"example","max_examples":null}}'
)

ENVELOPE = (
    # base64 with padding of the payload above
    b'{"payload":"' + base64.b64encode(PAYLOAD) + b'"'
    # covered by the signature
    b',"payloadType":"application/vnd.label-dp.manifest+json"'
    # exactly one signature
    b',"signatures":[{"keyid":"ed25519:56475aa75463474c0285df5dbf2bcab73da651358839e9b77481b2eab107708c"'
    # Ed25519 over "DSSEv1 38 <payloadType> <length of payload in bytes> <payload>"
    b',"sig":"xm2Iv7SNOJp7MsaeXEBjhA/7fRXHZywBAj57Ewh8XClOT6qK8bbjD1v+nBA9Xekvsu484pr+6pT91/Am011qAg=="}]}'
)

IDS = ["click-0", "click-1", *(f"click-{i}" for i in range(10, 20)), *(f"click-{i}" for i in range(2, 10))]
IDS += ["é", "日本", "\U0001f600"]  # sorted bytewise


# --- golden ------------------------------------------------------------------------------------------------


def test_the_payload_is_spelled_as_written_above() -> None:
    manifest = Manifest.from_payload(PAYLOAD)
    assert manifest.payload() == PAYLOAD
    assert canonical_bytes(manifest.document()) == PAYLOAD


def test_the_envelope_is_spelled_as_written_above() -> None:
    assert KEY.sign(MANIFEST_TYPE, json.loads(PAYLOAD)) == ENVELOPE


def test_the_stored_message_is_that_one() -> None:
    assert (V1 / "message.parquet.dsse.json").read_bytes() == ENVELOPE
    assert VerifyingKey.load(V1 / "signing.pub").id == KEY.public.id


def test_a_message_of_format_one_verifies_and_reads_for_ever() -> None:
    verified = verify(V1 / "message.parquet", VerifyingKey.load(V1 / "signing.pub"), ME)
    assert verified.manifest.epsilon.as_json() == {
        "clip": "0",
        "prior": "0.05",
        "randomize": "1",
        "total": "1.05",
        "delta": "0",
    }
    assert verified.digest == "aeeaac6e565dd43c09bc04aec7b34e2dfaf4aa570478a7a4e7ec1f0200b65e5e"
    assert verified.prior_path == V1 / "message.prior.parquet"
    table = read_message(list(verified.paths), verified.manifest)
    assert table["example_id"].to_pylist() == IDS
    assert set(table["label"].to_pylist()) == {0.5, 2.25}
    assert table["label"].to_pylist() == [(0.5, 2.25)[b] for b in table["bin"].to_pylist()]
    assert str(table.schema.field("bin").type) == "uint8"
    channel = verified.manifest.read_channel()
    assert channel.satisfies(verified.manifest.epsilon.randomize)
    # (t - q Σt) / (1 - dq) with q = B/N = 0.26894142, t = (0, 1.75)
    assert channel.debiased_outputs().tolist() == pytest.approx([-1.01845924, 2.76845924], abs=1e-7)


# --- touched -----------------------------------------------------------------------------------------------


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(V1, tmp_path / "m")
    return tmp_path / "m" / "message.parquet"


def envelope_of(path: Path) -> Path:
    return path.with_name(path.name + ".dsse.json")


def accepted(path: Path) -> bool:
    """Whether verification lets it pass; any refusal must be a typed one."""
    try:
        verify(path, KEY.public, ME)
    except (VerificationFailed, InvalidFile):
        return False
    return True


def test_the_untouched_copy_is_accepted(copy: Path) -> None:
    assert accepted(copy)


def test_a_flipped_bit_of_any_byte_of_the_manifest_is_refused() -> None:
    signature = json.loads(ENVELOPE)
    for position in range(len(PAYLOAD)):
        payload = bytearray(PAYLOAD)
        payload[position] ^= 1 << BITS.randrange(8)
        forged = canonical_bytes(signature | {"payload": base64.b64encode(payload).decode()})
        with pytest.raises(SignatureInvalid):
            Manifest.trusted(forged, KEY.public, ME)


def test_a_flipped_bit_of_any_byte_of_the_envelope_file_is_refused() -> None:
    for position in range(len(ENVELOPE)):
        forged = bytearray(ENVELOPE)
        forged[position] ^= 1 << BITS.randrange(8)
        with pytest.raises((SignatureInvalid, MalformedManifest)):
            Manifest.trusted(bytes(forged), KEY.public, ME)


def test_five_hundred_flips_of_the_parquet_file_are_refused(copy: Path) -> None:
    whole = copy.read_bytes()
    rng = np.random.default_rng(17)
    passed = 0
    for _ in range(500):
        data = bytearray(whole)
        data[rng.integers(len(data))] ^= 1 << rng.integers(8)
        copy.write_bytes(bytes(data))
        passed += accepted(copy)
    assert passed == 0


def test_truncation_and_growth_are_refused_at_every_length(copy: Path) -> None:
    for path in (copy, envelope_of(copy), copy.with_name("message.prior.parquet")):
        whole = path.read_bytes()
        lengths = {0, 1, len(whole) // 2, len(whole) - 1, *range(0, len(whole), 61)}
        for data in [whole[:n] for n in lengths] + [whole + b"\0", whole + whole, b"\0" + whole]:
            path.write_bytes(data)
            assert not accepted(copy), (path.name, len(data))
        path.write_bytes(whole)
    assert accepted(copy)


def other(tmp_path: Path, change: Callable[[dict], object], key: SigningKey = KEY, kind: str = MANIFEST_TYPE) -> bytes:  # type: ignore[type-arg]  # any JSON
    document = json.loads(PAYLOAD)
    change(document)
    return key.sign(kind, document)


def test_swapped_files_are_refused(copy: Path) -> None:
    prior = copy.with_name("message.prior.parquet")
    message, mass = copy.read_bytes(), prior.read_bytes()
    copy.write_bytes(mass)
    prior.write_bytes(message)
    with pytest.raises(DigestMismatch):
        verify(copy, KEY.public, ME)
    copy.write_bytes(mass)
    prior.write_bytes(mass)
    with pytest.raises(DigestMismatch):
        verify(copy, KEY.public, ME)


def test_a_message_under_the_manifest_of_another_is_refused(copy: Path, tmp_path: Path) -> None:
    spliced = other(tmp_path, lambda d: d["files"][0].update(sha256="0" * 64))
    envelope_of(copy).write_bytes(spliced)
    with pytest.raises(DigestMismatch):
        verify(copy, KEY.public, ME)


def test_another_name_is_refused(copy: Path) -> None:
    for audience in ("features-party ", "Features-party", "third-party", "", "features-party\0"):
        with pytest.raises(AudienceMismatch):
            verify(copy, KEY.public, audience)
    assert verify(copy, KEY.public, "second-party").manifest.n == 23


def test_another_key_is_refused(copy: Path, tmp_path: Path) -> None:
    stranger = SigningKey.generate()
    with pytest.raises(SignatureInvalid):
        verify(copy, stranger.public, ME)
    envelope_of(copy).write_bytes(other(tmp_path, lambda d: None, stranger))
    with pytest.raises(SignatureInvalid):
        verify(copy, KEY.public, ME)


def test_a_manifest_that_names_another_key_than_its_signer_is_refused(copy: Path, tmp_path: Path) -> None:
    envelope_of(copy).write_bytes(other(tmp_path, lambda d: d.update(key_id="ed25519:" + "0" * 64)))
    with pytest.raises(MalformedManifest, match="another signing key"):
        verify(copy, KEY.public, ME)


def test_a_document_of_another_type_by_the_same_key_is_refused(copy: Path, tmp_path: Path) -> None:
    envelope_of(copy).write_bytes(other(tmp_path, lambda d: None, KEY, EXPORT_TYPE))
    with pytest.raises(SignatureInvalid, match="not of type"):
        verify(copy, KEY.public, ME)


def test_more_noise_less_noise_and_other_ids_do_not_pass(copy: Path, tmp_path: Path) -> None:
    for change in (
        lambda d: d["epsilon"].update(randomize="0.9", total="0.95"),
        lambda d: d["channel"].update(A="13485650502877570763"),
        lambda d: d.update(epsilon_spent="3"),
    ):
        envelope_of(copy).write_bytes(other(tmp_path, change))
        with pytest.raises(MalformedManifest):
            verify(copy, KEY.public, ME)


def test_missing_parts_are_named(copy: Path) -> None:
    copy.with_name("message.prior.parquet").unlink()  # a convenience: the manifest alone suffices
    assert verify(copy, KEY.public, ME).prior_path is None
    envelope_of(copy).unlink()
    with pytest.raises(InvalidFile, match="signed manifest"):
        verify(copy, KEY.public, ME)
    with pytest.raises(InvalidFile, match="no message"):
        verify(copy.with_name("absent.parquet"), KEY.public, ME)


def test_verification_writes_nothing_and_a_refused_copy_leaves_nothing(copy: Path, tmp_path: Path) -> None:
    before = {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in copy.parent.iterdir()}
    verify(copy, KEY.public, ME)
    assert {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in copy.parent.iterdir()} == before
    copy.write_bytes(copy.read_bytes()[:-1] + b"!")
    with pytest.raises(DigestMismatch):
        open_message(copy, KEY.public, ME).copy(tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


def test_what_was_checked_is_what_is_read(copy: Path, tmp_path: Path) -> None:
    verified = open_message(copy, KEY.public, ME).copy(tmp_path / "mine")
    copy.write_bytes(b"changed afterwards")
    assert read_message(list(verified.paths), verified.manifest).num_rows == 23
    again = verify(tmp_path / "mine", KEY.public, ME)
    assert again.digest == verified.digest
