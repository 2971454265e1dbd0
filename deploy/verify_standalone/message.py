"""A message: one envelope with the signed manifest, and the files whose digests it lists."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from .canonical import parse
from .channels import check_channel
from .clipping import check_clipping
from .envelope import open_envelope, read
from .exact import ATTO, NANO, units
from .refusal import UnusableError, refuse

MANIFEST_TYPE = "application/vnd.label-dp.manifest+json"
MAX_MANIFEST = 3 << 19  # bytes of the envelope
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)


def verify_message(path: Path, key: Ed25519PublicKey, key_id: str, audience: str | None) -> list[str]:
    """What was checked, a line each: the signature, the split of ε, the channel's ε, the digest of every file."""
    folder = path.is_dir()
    envelope_path = path / "manifest.dsse.json" if folder else path.with_name(path.name + ".dsse.json")
    payload = open_envelope(read(envelope_path, MAX_MANIFEST), key, key_id, MANIFEST_TYPE)
    m = parse(payload, "the manifest")
    if m["format"]["name"] != "label-dp-message" or type(m["format"]["major"]) is not int or m["format"]["major"] != 1:
        refuse("the document is not the manifest of a message of format 1")
    if m["key_id"] != key_id:
        refuse("the manifest names another signing key than the one that signed it")
    if audience is not None and audience not in m["audiences"]:
        refuse(f"the message is not meant for '{audience}'")
    said = [f"signature of {key_id}", f"release {m['release']} of batch {m['batch']}, {m['n']} examples"]
    said += [check_split(m)]
    _check_delta(m)
    said.append("channel: " + check_channel(m["channel"], m["domain"], units(m["epsilon"]["randomize"], NANO, "ε")))
    return said + check_clipping(m) + _check_files(m, path, folder)


def check_split(m: Any) -> str:
    """A line for the ε of a message or an answer: its parts, what the batch has spent, and the lifetime ε."""
    eps = m["epsilon"]
    if set(eps) != {"clip", "prior", "randomize", "total", "delta"}:
        refuse("the ε split has other parts than clip, prior, randomize, total and delta")
    parts = [units(eps[name], NANO, f"ε of part {name}") for name in ("clip", "prior", "randomize")]
    total = units(eps["total"], NANO, "ε")
    spent = units(m["epsilon_spent"], NANO, "ε spent")
    lifetime = units(m["epsilon_lifetime"], NANO, "lifetime ε")
    if sum(parts) != total:
        refuse("the parts of ε do not add up to its total")
    if not total <= spent <= lifetime:
        refuse("its own ε ≤ ε spent ≤ lifetime ε does not hold")
    return (
        f"ε {eps['total']} = clip {eps['clip']} + prior {eps['prior']} + randomize {eps['randomize']}, "
        f"spent {m['epsilon_spent']} of {m['epsilon_lifetime']}"
    )


def _check_delta(m: Any) -> None:
    if units(m["epsilon"]["delta"], ATTO, "δ") != 0:
        refuse("δ is not zero")
    if "delta" in m:
        spent_delta, most = (units(m["delta"][name], ATTO, f"δ {name}") for name in ("spent", "lifetime"))
        if not 0 <= spent_delta <= most:
            refuse("δ spent ≤ lifetime δ does not hold")


def _check_files(m: Any, path: Path, folder: bool) -> list[str]:
    said, rows, names = [], 0, set()
    parts = [f for f in m["files"] if f["role"] == "message"]
    if not parts or (not folder and len(parts) != 1):
        refuse("this message has several files; name the folder that holds them")
    for entry in m["files"]:
        name, role = entry["name"], entry["role"]
        if NAME.fullmatch(name) is None or name.lower() in names or name.lower().endswith(".dsse.json"):
            refuse("a file of the message has no plain name of its own")
        names.add(name.lower())  # some file systems do not tell them apart
        if role not in ("message", "prior") or not isinstance(entry["rows"], int):
            refuse("a file of the message has an unknown role")
        rows += entry["rows"] if role == "message" else 0
        place = path / name if folder else path if role == "message" else path.with_name(path.stem + ".prior.parquet")
        if role == "prior" and not place.exists():
            said.append("not checked: the prior's file, which is not here and not needed")
            continue
        size, digest = _hash(place, entry["bytes"])
        if size != entry["bytes"] or digest != entry["sha256"]:
            refuse(f"'{place.name}' does not match the manifest: it was changed or cut short")
        said.append(f"{place.name}: {size} bytes, SHA-256 {digest}")
    if rows != m["n"]:
        refuse("the rows of the message's files do not add up to n")
    return said


def _hash(path: Path, most: int) -> tuple[int, str]:
    hasher, size = hashlib.sha256(), 0
    try:
        with path.open("rb") as file:
            while (chunk := file.read(1 << 20)) and size <= most:
                size += len(chunk)
                hasher.update(chunk)
    except OSError as error:
        raise UnusableError(f"'{path}' cannot be read ({error.strerror}).") from None
    return size, hasher.hexdigest()
