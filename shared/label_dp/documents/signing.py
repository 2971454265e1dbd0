"""Ed25519 signatures in a DSSE envelope (Dead Simple Signing Envelope, v1.0) over typed, length-prefixed bytes."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from label_dp.documents.canonical import canonical_bytes
from label_dp.errors import InvalidFile, MalformedManifest, SignatureInvalid

MANIFEST_TYPE = "application/vnd.label-dp.manifest+json"
REHEARSAL_TYPE = "application/vnd.label-dp.rehearsal+json"
EXPORT_TYPE = "application/vnd.label-dp.audit-export+json"
RECEIPT_TYPE = "application/vnd.label-dp.receipt+json"
ANSWER_TYPE = "application/vnd.label-dp.answer+json"
REPORT_TYPE = "application/vnd.label-dp.report+json"
BACKUP_TYPE = "application/vnd.label-dp.backup+json"


def pae(payload_type: str, payload: bytes) -> bytes:
    """Encode for DSSE pre-authentication; lengths count bytes, not characters."""
    kind = payload_type.encode("utf-8")
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def key_id(raw_public: bytes) -> str:
    """Return the id of a raw public key."""
    return "ed25519:" + hashlib.sha256(raw_public).hexdigest()


@dataclass(frozen=True)
class VerifyingKey:
    """Public key and its id; `load` reads the PEM file `keys/signing.pub` of the other party. `until` is the last UTC
    day for which it signs: later documents are refused."""

    key: Ed25519PublicKey
    until: str | None = field(default=None, compare=False)

    @property
    def id(self) -> str:
        return key_id(self.raw)

    @property
    def pem(self) -> bytes:
        return self.key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)

    @classmethod
    def from_pem(cls, pem: bytes) -> VerifyingKey:
        try:
            key = serialization.load_pem_public_key(pem)
        except (ValueError, UnsupportedAlgorithm):
            raise InvalidFile(
                "The labels party's key is not a PEM public key; expected its file keys/signing.pub."
            ) from None
        if not isinstance(key, Ed25519PublicKey):
            raise InvalidFile("The labels party's key is not an Ed25519 key; expected its file keys/signing.pub.")
        return cls(key)

    @property
    def raw(self) -> bytes:
        """Raw 32 bytes of the key; `id` is their SHA-256."""
        return self.key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)

    @classmethod
    def from_raw(cls, raw: bytes) -> VerifyingKey:
        """Load a raw key. Raises InvalidFile for anything but 32 bytes."""
        try:
            return cls(Ed25519PublicKey.from_public_bytes(raw))
        except ValueError:
            raise InvalidFile("A raw Ed25519 public key has 32 bytes.") from None

    @classmethod
    def load(cls, path: Path) -> VerifyingKey:
        try:
            return cls.from_pem(path.read_bytes())
        except OSError as error:
            raise InvalidFile(f"The key file '{path}' cannot be read ({error.strerror}).") from None


@dataclass(frozen=True)
class SigningKey:
    """Private key; its file is readable by its owner only and never leaves the party's folder."""

    key: Ed25519PrivateKey

    def __repr__(self) -> str:
        return f"SigningKey({self.public.id})"

    @property
    def public(self) -> VerifyingKey:
        return VerifyingKey(self.key.public_key())

    def now(self) -> SigningKey:
        """Return this key; a rotating key returns its present one, to be named and to sign."""
        return self

    @classmethod
    def generate(cls) -> SigningKey:
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: Path) -> SigningKey:
        try:
            key = serialization.load_pem_private_key(path.read_bytes(), password=None)
        except OSError as error:
            raise InvalidFile(f"The signing key '{path}' cannot be read ({error.strerror}).") from None
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise InvalidFile(f"The signing key '{path}' is not an unencrypted PEM private key.") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise InvalidFile(f"The signing key '{path}' is not an Ed25519 key.")
        return cls(key)

    @property
    def pem(self) -> bytes:
        """Private key in PEM."""
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def save(self, private_path: Path, public_path: Path) -> None:
        """Write both halves; never overwrites a private key, since its documents need it."""
        private_path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        save_once(private_path, self.pem)
        public_path.write_bytes(self.public.pem)

    def sign(self, payload_type: str, document: Any) -> bytes:
        """Sign the canonical bytes of `document`; returns the envelope (bytes of canonical JSON)."""
        return self.envelope(payload_type, canonical_bytes(document))

    def envelope(self, payload_type: str, payload: bytes) -> bytes:
        """Sign canonical bytes, otherwise as `sign`."""
        signature = self.key.sign(pae(payload_type, payload))
        return canonical_bytes(
            {
                "payload": base64.b64encode(payload).decode("ascii"),
                "payloadType": payload_type,
                "signatures": [{"keyid": self.public.id, "sig": base64.b64encode(signature).decode("ascii")}],
            }
        )


def open_envelope(envelope: bytes, key: VerifyingKey, payload_type: str, *, max_bytes: int) -> bytes:
    """Verify the signature of `key` and return the payload; nothing inside is parsed before that. Raises
    MalformedManifest if it is no envelope, SignatureInvalid for a wrong key, type or signature."""
    if len(envelope) > max_bytes:
        raise MalformedManifest(f"The signed document is larger than {max_bytes} bytes.")
    try:
        data = json.loads(envelope.decode("utf-8"))
        if canonical_bytes(data) != envelope or set(data) != {"payload", "payloadType", "signatures"}:
            raise ValueError
        (entry,) = data["signatures"]
        if set(entry) != {"keyid", "sig"} or not all(isinstance(v, str) for v in (*entry.values(), data["payload"])):
            raise ValueError
        payload = strict_base64(data["payload"])
        signature = strict_base64(entry["sig"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise MalformedManifest("The file is not a DSSE envelope with exactly one signature.") from None
    if data["payloadType"] == REHEARSAL_TYPE != payload_type:
        raise SignatureInvalid("This is a rehearsal with made-up labels; a labels party's document is wanted here.")
    if data["payloadType"] != payload_type:
        raise SignatureInvalid(f"The signed document is not of type {payload_type}.")
    if entry["keyid"] != key.id:
        raise SignatureInvalid(
            "The document names another signing key than the one to verify it with; check the key with its owner. What "
            "was signed before a rotation verifies with the public key of then, which its owner keeps beside "
            "keys/signing.pub."
        )
    try:
        key.key.verify(signature, pae(payload_type, payload))
    except InvalidSignature:
        raise SignatureInvalid(
            "The signature does not verify under the pinned key; the document was changed or forged."
        ) from None
    return payload


def named_key(envelope: bytes) -> str:
    """Return the key id that an envelope names: untrusted, only to select among trusted keys. Raises
    MalformedManifest."""
    try:
        named = json.loads(envelope)["signatures"][0]["keyid"]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        named = None
    if not isinstance(named, str):
        raise MalformedManifest("The file is not a DSSE envelope with exactly one signature.")
    return named


def is_rehearsal(envelope: bytes) -> bool:
    """Return whether an envelope claims to be a rehearsal: untrusted, only to select the verification."""
    try:
        return bool(json.loads(envelope)["payloadType"] == REHEARSAL_TYPE)
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def strict_base64(text: str) -> bytes:
    """Decode base64 in its one spelling. Raises ValueError."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("not base64") from None
    if base64.b64encode(data).decode("ascii") != text:
        raise ValueError("not the canonical base64 spelling")
    return data


def save_once(path: Path, secret: bytes) -> None:
    """Write a file that only its owner may read, whole or not at all. Raises FileExistsError if it exists."""
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secret)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
    finally:
        temporary.unlink()
