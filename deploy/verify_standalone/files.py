"""The files of a message: what the manifest lists, and whether they are what lies here."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

from .members import MANY, count, listed, matching, members, one_of
from .refusal import UnusableError, refuse

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
MOST_FILES, MOST_BYTES = 4096, 1 << 50
FILE_ROW_BYTES, FILE_SLACK = 560, 1 << 18  # bytes of a row and its id at most, and of what a file has besides


def check_list(m: Any, k: int) -> None:
    """Whether the list of files is one: parts whose rows add up to n, and a prior of at most k labels."""
    roles, names = [], set()
    for entry in listed(m["files"], 1, MOST_FILES, "the list of files"):
        members(entry, ("role", "name", "bytes", "rows", "sha256"), "a file of the message")
        roles.append(one_of(entry["role"], ("message", "prior"), "the role of a file"))
        name = matching(entry["name"], NAME, "the name of a file").lower()
        if name in names or name.endswith(".dsse.json"):
            refuse("a file of the message has no plain name of its own")
        names.add(name)  # some file systems do not tell them apart
        count(entry["bytes"], 1, MOST_BYTES, "the size of a file")
        count(entry["rows"], 0, MANY, "the rows of a file")
        if entry["role"] == "prior" and entry["rows"] > k:
            refuse("the prior has more rows than the domain has labels")
        if entry["bytes"] > FILE_SLACK + FILE_ROW_BYTES * entry["rows"]:
            refuse("a file of the message has more bytes than its rows can take")
        matching(entry["sha256"], DIGEST, "the digest of a file")
    if "message" not in roles or roles.count("prior") > 1:
        refuse("a message has at least one part, and at most one prior")
    if sum(entry["rows"] for entry in m["files"] if entry["role"] == "message") != m["n"]:
        refuse("the rows of the message's files do not add up to n")


def check_files(m: Any, path: Path, folder: bool) -> list[str]:
    """A line for each file, whose length and SHA-256 are those of the manifest."""
    said = []
    if not folder and sum(entry["role"] == "message" for entry in m["files"]) != 1:
        refuse("this message has several files; name the folder that holds them")
    for entry in m["files"]:
        name, role = entry["name"], entry["role"]
        place = path / name if folder else path if role == "message" else path.with_name(path.stem + ".prior.parquet")
        if role == "prior" and not place.exists():
            said.append("not checked: the prior's file, which is not here and not needed")
            continue
        size, digest = _hash(place, entry["bytes"])
        if size != entry["bytes"] or digest != entry["sha256"]:
            refuse(f"'{place.name}' does not match the manifest: it was changed or cut short", "digest")
        said.append(f"{place.name}: {size} bytes, SHA-256 {digest}")
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
