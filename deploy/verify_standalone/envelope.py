"""The signature: a DSSE v1.0 envelope with one Ed25519 signature, the canonical JSON in it, and the files that hold
envelopes and keys."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

from .refusal import RefusedError, UnusableError, refuse


def canonical(value: Any, depth: int = 0) -> str:
    """The one spelling of strings, whole numbers, booleans, null, lists and objects."""
    if depth > 16:
        refuse("a signed document is nested too deeply")
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        if abs(value) >= 1 << 53:
            refuse("a whole number is too large for canonical JSON")
        return str(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return "[" + ",".join(canonical(item, depth + 1) for item in value) + "]"
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{canonical(n)}:{canonical(value[n], depth + 1)}" for n in names) + "}"
    raise RefusedError("a signed document holds a value that its format does not have")


def canonical_bytes(value: Any) -> bytes:
    """The bytes that are signed, and that digests of events are taken of."""
    try:
        return canonical(value).encode("utf-8")
    except UnicodeEncodeError:
        refuse("a signed document holds half a character")


def _no_float(_: str) -> NoReturn:
    refuse("a signed document holds a floating-point number")


def parse(data: bytes, what: str) -> Any:
    """The value of canonical JSON; every other spelling of it is refused."""
    try:
        value = json.loads(data.decode("utf-8"), parse_float=_no_float, parse_constant=_no_float)
    except (ValueError, RecursionError):
        refuse(f"{what} is not JSON")
    if canonical_bytes(value) != data:
        refuse(f"{what} is not in its canonical spelling")
    return value


def read(path: Path, most: int) -> bytes:
    """A whole file; refused if it has more than `most` bytes."""
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise UnusableError(f"'{path}' cannot be read ({error.strerror}).") from None
    if len(data) > most:
        refuse(f"'{path.name}' is larger than such a document can be")
    return data


def read_lines(path: Path, most: int) -> Iterator[bytes]:
    """The lines of a file, at least one; refused if one has more than `most` bytes."""
    try:
        with path.open("rb") as file:
            line = file.readline(most + 1)
            while True:
                if len(line) > most:
                    refuse(f"'{path.name}' is larger than such a document can be")
                yield line.removesuffix(b"\n")
                line = file.readline(most + 1)
                if not line:
                    return
    except OSError as error:
        raise UnusableError(f"'{path}' cannot be read ({error.strerror}).") from None


def load_key(path: Path) -> tuple[Ed25519PublicKey, str]:
    """(key, its id). The id is the SHA-256 of the raw key."""
    try:
        key = load_pem_public_key(read(path, 1 << 16))
    except (ValueError, UnsupportedAlgorithm):
        raise UnusableError(f"'{path}' is not a PEM public key.") from None
    if not isinstance(key, Ed25519PublicKey):
        raise UnusableError(f"'{path}' is not an Ed25519 key.")
    return key, "ed25519:" + hashlib.sha256(key.public_bytes(Encoding.Raw, PublicFormat.Raw)).hexdigest()


def strict_base64(text: object) -> bytes:
    """Decode base64 in canonical spelling, or refuse."""
    if not isinstance(text, str):
        refuse("a part of the envelope is not text")
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        refuse("a part of the envelope is not base64")
    if base64.b64encode(data).decode("ascii") != text:
        refuse("a part of the envelope is not in its canonical base64 spelling")
    return data


def is_entry(value: Any) -> bool:
    """Whether it is a signature in an envelope: a key id and base64."""
    texts = isinstance(value, dict) and all(isinstance(member, str) for member in value.values())
    return texts and set(value) == {"keyid", "sig"}


def open_envelope(envelope: bytes, key: Ed25519PublicKey, key_id: str, kind: str) -> bytes:
    """The signed payload; nothing in it is looked at before its signature was verified."""
    data = parse(envelope, "the envelope")
    if not isinstance(data, dict) or set(data) != {"payload", "payloadType", "signatures"}:
        refuse("the file is not a DSSE envelope")
    signatures = data["signatures"]
    if not isinstance(signatures, list) or len(signatures) != 1 or not is_entry(signatures[0]):
        refuse("the envelope must carry exactly one signature")
    if data["payloadType"] == "application/vnd.label-dp.rehearsal+json" != kind:
        refuse("this is a rehearsal with made-up labels, which the command 'rehearsal' verifies", "signature")
    if data["payloadType"] != kind:
        refuse(f"the signed document is not of type {kind}", "signature")
    if signatures[0]["keyid"] != key_id:
        refuse(
            "the document names another signing key than the given one; what was signed before a rotation verifies "
            "with the public key of then, keys/signing-….pub of its signer",
            "signature",
        )
    payload, signature = strict_base64(data["payload"]), strict_base64(signatures[0]["sig"])
    name = kind.encode("utf-8")
    try:
        key.verify(signature, b"DSSEv1 %d %b %d %b" % (len(name), name, len(payload), payload))
    except InvalidSignature:
        refuse("the signature does not verify: the document was changed or forged", "signature")
    return payload
