"""Golden bytes of a receipt, field by field, and receipts in exports as the standalone verifier reads them."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from label_dp.audit.receipts import ReceiptChain
from label_dp.audit.store import read_export
from label_dp.documents.members import ChainHead
from label_dp.documents.receipt import Receipt, open_receipt
from label_dp.documents.signing import EXPORT_TYPE, RECEIPT_TYPE, SigningKey
from label_dp.errors import AuditChainBroken, LabelDPError, MalformedReceipt, SignatureInvalid, UnsupportedVersion
from tests.support.receipts import Pair, pair
from tests.wire.test_standalone_verifier import bare, chained, copied, refused, verified

__all__ = ["bare"]
Bare = Callable[..., subprocess.CompletedProcess[str]]
KEY = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
RECEIPT = Receipt(
    document_id="rel_1",
    document_digest="ab" * 32,
    labels_key_id="ed25519:" + "cd" * 32,
    audience="features-party",
    accepted="2026-01-02",
    position=2,
    previous="ef" * 32,
    chain_head=ChainHead(day="2026-01-01", digest="12" * 32),
)
PAYLOAD = (
    # the UTC day, by the receiver's clock; that of the audit event that holds the receipt
    b'{"accepted":"2026-01-02"'
    # who accepted: one of the names in the manifest
    b',"audience":"features-party"'
    # the first event of the newest day of the receiver's audit chain
    b',"chain_head":{"day":"2026-01-01","digest":"' + b"12" * 32 + b'"}'
    # SHA-256 of the payload of the manifest or the answer, and its id
    b',"document_digest":"' + b"ab" * 32 + b'"'
    b',"document_id":"rel_1"'
    b',"format":"label-dp-receipt/1"'
    # whose release it is: SHA-256 of the raw Ed25519 key that signed the manifest
    b',"labels_key_id":"ed25519:' + b"cd" * 32 + b'"'
    # from 1, in the receiver's list for this labels party
    b',"position":2'
    # SHA-256 of the payload of receipt 1
    b',"previous":"' + b"ef" * 32 + b'"}'
)


def test_the_payload_and_its_signature() -> None:
    envelope = RECEIPT.signed(KEY)
    assert base64.b64decode(envelope["payload"]) == PAYLOAD
    assert envelope["payloadType"] == "application/vnd.label-dp.receipt+json"
    assert RECEIPT.digest == hashlib.sha256(PAYLOAD).hexdigest()
    assert open_receipt(envelope, KEY.public) == open_receipt(Receipt.envelope_bytes(envelope), KEY.public) == RECEIPT


def test_every_flipped_bit_is_refused() -> None:
    whole = Receipt.envelope_bytes(RECEIPT.signed(KEY))
    for position in range(len(whole)):
        for bit in range(8):
            forged = bytearray(whole)
            forged[position] ^= 1 << bit
            with pytest.raises((MalformedReceipt, SignatureInvalid)):
                open_receipt(bytes(forged), KEY.public)
    for cut in (whole[:-1], whole + b" ", b"", b"[]", b"null", b"\xff"):
        with pytest.raises(MalformedReceipt):
            open_receipt(cut, KEY.public)


@pytest.mark.parametrize(
    "document",
    [
        RECEIPT.document() | {"format": "label-dp-answer/1"},
        RECEIPT.document() | {"accepted": "2026-01-02T03:04:05Z"},
        RECEIPT.document() | {"more": 1},
        {k: v for k, v in RECEIPT.document().items() if k != "previous"},
        RECEIPT.document() | {"position": True},
        RECEIPT.document() | {"position": "2"},
        RECEIPT.document() | {"document_id": ""},
        RECEIPT.document() | {"document_id": 7},
        [],
    ],
)
def test_a_signed_document_of_another_form_is_refused(document: Any) -> None:
    with pytest.raises(MalformedReceipt):
        open_receipt(KEY.sign(RECEIPT_TYPE, document), KEY.public)


def test_a_newer_version_is_refused_with_what_to_do() -> None:
    with pytest.raises(UnsupportedVersion, match="upgrade"):
        open_receipt(KEY.sign(RECEIPT_TYPE, RECEIPT.document() | {"format": "label-dp-receipt/2"}), KEY.public)


# --- in exports ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def acknowledged(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(pair, export of the labels party, export of the receiver) after a release, an answer and a release."""
    with pair(tmp_path_factory.mktemp("pair")) as both:
        both.pull()
        both.pull_answer()
        both.pull()
        yield both, both.labels_export(), both.features_export()


def document_of(export: Path) -> dict[str, Any]:
    return dict(json.loads(base64.b64decode(json.loads(export.read_bytes())["payload"])))


def keys_of(both: Pair) -> dict[str, tuple[SigningKey, Path]]:
    labels, features = both.labels.services, both.receiver.services
    return {
        "labels": (labels.key, labels.home.public_key),
        "features": (features.home.own_key(), features.home.public_key),
    }


@pytest.mark.processes
def test_both_exports_verify_with_their_receipts(bare: Bare, acknowledged: Any) -> None:
    both, labels, features = acknowledged
    for export, party in ((labels, "labels"), (features, "features")):
        told = verified(bare("audit", export, "--key", keys_of(both)[party][1]))
        assert "3 signed receipts" in told
        assert document_of(export)["format"] == "label-dp-audit-export/1"


def held(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [e for e in document["events"] if "receipt" in e["details"]]


def resigned(event: dict[str, Any], key: SigningKey, **changes: Any) -> None:
    old = json.loads(base64.b64decode(event["details"]["receipt"]["payload"]))
    event["details"]["receipt"] = json.loads(key.sign(RECEIPT_TYPE, old | changes))


Forge = Callable[[dict[str, Any], SigningKey], object]  # the document, the receiver's key
FORGED: dict[str, Forge] = {
    "another receipt's envelope": lambda d, _: held(d)[1]["details"].update(receipt=held(d)[0]["details"]["receipt"]),
    "a receipt of a stranger": lambda d, _: resigned(held(d)[1], KEY),
    "another manifest": lambda d, k: resigned(held(d)[1], k, document_digest="0" * 64),
    "another release": lambda d, k: resigned(held(d)[1], k, document_id="rel_0"),
    "another audience": lambda d, k: resigned(held(d)[1], k, audience="somebody"),
    "a wrong link": lambda d, k: resigned(held(d)[1], k, previous="0" * 64),
    "a taken position": lambda d, k: resigned(held(d)[1], k, position=1),
    "no signature": lambda d, _: held(d)[1]["details"]["receipt"].update(signatures=[]),
    "no envelope": lambda d, _: held(d)[1]["details"].update(receipt=None),
}
AT_LABELS: dict[str, Forge] = {
    "an unregistered key": lambda d, _: d["events"].remove(
        next(e for e in d["events"] if e["kind"] == "receipt-key-registered")
    ),
    "a key of another name": lambda d, _: next(e for e in d["events"] if e["kind"] == "receipt-key-registered")[
        "details"
    ].update(key_id=KEY.public.id),
}
AT_FEATURES: dict[str, Forge] = {
    "another labels party": lambda d, k: resigned(held(d)[1], k, labels_key_id="ed25519:" + "0" * 64),
    "one left out": lambda d, _: d["events"].remove(held(d)[1]),
    "another time": lambda d, k: resigned(held(d)[1], k, accepted="2029-01-01"),
}


@pytest.mark.processes
@pytest.mark.parametrize(
    ("party", "name"),
    [("labels", name) for name in FORGED | AT_LABELS] + [("features", name) for name in FORGED | AT_FEATURES],
)
def test_a_forged_receipt_in_a_validly_signed_export_is_refused(
    bare: Bare, acknowledged: Any, tmp_path: Path, party: str, name: str
) -> None:
    both, labels, features = acknowledged
    keys = keys_of(both)
    key, public = keys[party]
    document = copied(document_of(labels if party == "labels" else features))
    (FORGED | AT_LABELS | AT_FEATURES)[name](document, keys["features"][0])
    envelope = key.sign(EXPORT_TYPE, chained(document))
    (tmp_path / "forged.json").write_bytes(envelope)
    refused(bare("audit", tmp_path / "forged.json", "--key", public))
    with pytest.raises(AuditChainBroken):
        ReceiptChain.of(read_export(envelope, key.public).events, key.public)


@pytest.mark.processes
def test_an_export_says_when_it_was_made(bare: Bare, acknowledged: Any, tmp_path: Path) -> None:
    both, labels, _ = acknowledged
    key, public = keys_of(both)["labels"]
    document, path = document_of(labels), tmp_path / "export.json"
    undated = {name: value for name, value in document.items() if name != "made"}
    for wrong in (undated, document | {"made": None}, document | {"made": ""}, document | {"more": 1},
                  *(document | {"format": f"label-dp-audit{other}"} for other in ("-export/2", "/1"))):  # fmt: skip
        path.write_bytes(key.sign(EXPORT_TYPE, wrong))
        with pytest.raises(LabelDPError):
            read_export(path.read_bytes(), key.public)
        refused(bare("audit", path, "--key", public))
