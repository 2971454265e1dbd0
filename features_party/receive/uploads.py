"""Message that arrives as loose files, told apart by the signed manifest and never by path."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, BinaryIO, cast

from features_party.receive.pinned import PinnedKeys
from label_dp.documents.bundle import ENVELOPE_SUFFIX, FOLDER_ENVELOPE
from label_dp.documents.manifest import Manifest
from label_dp.documents.signed import MAX_ENVELOPE_BYTES
from label_dp.errors import InvalidFile

MAX_PARTS = 4100
COPY_CHUNK = 1 << 18
PRIOR_SUFFIX = ".prior.parquet"


def arrange(parts: Iterable[tuple[str, Path]], pinned: PinnedKeys, audience: str, folder: Path) -> Path:
    """Move uploaded parts (the sender's name, our file) into `folder`, laid out as a message folder.

    Names only tell the parts apart; files get the manifest's names, and their bytes are checked later, at intake.
    Raises VerificationFailed kinds, and InvalidFile if a part is missing or extra.
    """
    plain = {name.replace("\\", "/").rsplit("/", 1)[-1]: path for name, path in parts}
    envelopes = [name for name in plain if name.endswith(ENVELOPE_SUFFIX)]
    if len(envelopes) != 1:
        raise InvalidFile(f"Upload exactly one signed manifest (a file named …{ENVELOPE_SUFFIX}) with the message.")
    envelope_path = plain.pop(envelopes[0])
    if envelope_path.stat().st_size > MAX_ENVELOPE_BYTES:
        raise InvalidFile("The uploaded manifest is larger than a manifest can be.")
    envelope = envelope_path.read_bytes()
    manifest, _ = Manifest.trusted(envelope, pinned.for_envelope(envelope), audience)
    (folder / FOLDER_ENVELOPE).write_bytes(envelope)
    for entry in manifest.files:
        part = plain.pop(entry.name, None)
        if part is None and entry.role == "prior":
            name = next((name for name in plain if name.endswith(PRIOR_SUFFIX)), None)
            part = plain.pop(name) if name is not None else None
        elif part is None and len(manifest.message_files) == 1:
            name = next((name for name in plain if not name.endswith(PRIOR_SUFFIX)), None)
            part = plain.pop(name) if name is not None else None
        if part is not None:
            part.rename(folder / entry.name)
        elif entry.role == "message":
            raise InvalidFile(f"The upload lacks the file '{entry.name}' of the message.")
    if plain:
        raise InvalidFile("The upload has a file that the manifest does not name.")
    return folder


def untar(archive: Path, folder: Path) -> list[tuple[str, Path]]:
    """Extract the regular files of an uncompressed tar into `folder`, under names of ours. Raises InvalidFile.

    Nothing is verified yet, so it may take no more space than the archive: sparse members are refused, and all members
    together are no larger than the archive.
    """
    parts: list[tuple[str, Path]] = []
    remaining, members = archive.stat().st_size, 0
    try:
        with archive.open("rb") as raw, tarfile.open(fileobj=cast("IO[bytes]", _Careful(raw)), mode="r:") as tar:
            for member in tar:
                members += 1
                remaining -= max(member.size, 0)
                if member.issparse() or member.size < 0 or remaining < 0 or members > MAX_PARTS:
                    raise InvalidFile("The archive holds more, or unpacks to more, than a message can be.")
                if member.isdir():
                    continue
                source = tar.extractfile(member) if member.isreg() else None
                if source is None:
                    raise InvalidFile("The archive holds something that is not a file of a message.")
                target = folder / f"part-{len(parts)}"
                with source, target.open("wb") as file:
                    shutil.copyfileobj(source, file, COPY_CHUNK)
                parts.append((member.name, target))
    except (tarfile.TarError, EOFError, ValueError, RecursionError):
        raise InvalidFile("The upload is not a complete, uncompressed tar archive.") from None
    return parts


class _Careful:
    """Archive as `tarfile` reads it: large headers (long names, pax records) are refused instead of read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.tell = file.tell

    def read(self, size: int) -> bytes:
        if not 0 <= size <= COPY_CHUNK:
            raise tarfile.ReadError("a header is too large")
        return self._file.read(size)

    def seek(self, position: int) -> int:
        if position < 0:
            raise tarfile.ReadError("a size is negative")
        return self._file.seek(position)
