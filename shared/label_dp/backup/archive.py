"""File of a backup: a ZIP whose last member is the signed manifest of all others. Nothing in it is trusted before the
manifest's signature and every member's SHA-256 were checked."""

from __future__ import annotations

import hashlib
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from label_dp.documents.backup import BackupManifest, BackupMember
from label_dp.documents.signing import VerifyingKey, named_key
from label_dp.errors import InvalidFile

MANIFEST, KEYS = "manifest.dsse.json", "keys.sealed"
DATABASE, HOME = "database/", "home/"
CHUNK = 1 << 20
# errors of reading a foreign file, such as one of an unknown version or with impossible names
# NotImplementedError is how zipfile refuses a compression or encryption that it does not know
BROKEN = (KeyError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError, struct.error)
ENCRYPTED = 1  # flag of a member
MOST_MANIFEST = BackupManifest.MOST_ENVELOPE


class ArchiveWriter:
    """Writer of a backup. `members` are those written so far."""

    def __init__(self, path: Path) -> None:
        path.touch(mode=0o600)
        self._zip = zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True)
        self.members: list[BackupMember] = []

    def add(self, name: str, source: BinaryIO, most: int | None = None) -> None:
        """Add a member, of at most `most` bytes."""
        sha256, size = hashlib.sha256(), 0
        info = zipfile.ZipInfo(name)
        info.external_attr = 0o600 << 16
        info.compress_type = _ways(name)[-1]
        with self._zip.open(info, "w", force_zip64=True) as out:
            while chunk := source.read(CHUNK if most is None else min(CHUNK, most - size)):
                out.write(chunk)
                sha256.update(chunk)
                size += len(chunk)
        self.members.append(BackupMember(name=name, bytes=size, sha256=sha256.hexdigest()))

    def finish(self, manifest: bytes) -> None:
        self._zip.writestr(zipfile.ZipInfo(MANIFEST), manifest)
        self._zip.close()

    def close(self) -> None:
        self._zip.close()


class Archive:
    """Members of an opened backup."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._zip = archive
        if any(
            info.flag_bits & ENCRYPTED or info.compress_type not in _ways(info.filename) for info in archive.infolist()
        ):
            raise InvalidFile("This is no backup: a member of it is encrypted, or compressed in another way than ours.")
        if not self.has(MANIFEST):
            raise InvalidFile("This is no backup: it has no manifest.")
        self.envelope = self.bounded(MANIFEST, MOST_MANIFEST)

    @property
    def key_id(self) -> str:
        """Id of the key that signed it."""
        return named_key(self.envelope)

    def has(self, name: str) -> bool:
        return name in self._zip.namelist()

    def checked(self, key: VerifyingKey) -> BackupManifest:
        """Check the signature and all members, and return the manifest. Raises InvalidFile, SignatureInvalid."""
        manifest, _ = BackupManifest.opened(self.envelope, key)
        if (
            len(set(self._zip.namelist())) != len(manifest.members) + 1
            or len(self._zip.namelist()) != len(manifest.members) + 1
        ):
            raise InvalidFile("The backup has other members than its manifest names; nothing was made.")
        for member in manifest.members:
            _check_name(member.name)
            sha256, size = hashlib.sha256(), 0
            with self.reading(member.name) as source:
                while chunk := source.read(CHUNK):
                    sha256.update(chunk)
                    size += len(chunk)
            if (size, sha256.hexdigest()) != (member.bytes, member.sha256):
                raise InvalidFile(f"The backup's '{member.name}' is damaged: another SHA-256. Nothing was made.")
        return manifest

    @contextmanager
    def reading(self, name: str) -> Iterator[Any]:
        """Open a member. Raises InvalidFile."""
        try:
            with self._zip.open(name) as source:
                yield source
        except BROKEN:
            raise InvalidFile(f"The backup's '{name}' is damaged or missing; nothing was made.") from None

    def bounded(self, name: str, most: int) -> bytes:
        """Read a member of at most `most` bytes, whatever its header says. Raises InvalidFile."""
        with self.reading(name) as source:
            data = bytes(source.read(most + 1))
        if len(data) > most:
            raise InvalidFile(f"The backup's '{name}' is too large; nothing was made.")
        return data

    def copy(self, name: str, target: Path) -> None:
        """Write a checked member as a new file. Raises OSError."""
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.reading(name) as source, target.open("xb") as out:
            while chunk := source.read(CHUNK):
                out.write(chunk)
            out.flush()


@contextmanager
def opened(path: Path) -> Iterator[Archive]:
    """Open a backup. Raises InvalidFile."""
    try:
        archive = zipfile.ZipFile(path)
    except BROKEN:
        raise InvalidFile(f"'{path}' is no backup, or it is cut off.") from None
    except OSError as error:
        raise InvalidFile(f"The backup '{path}' cannot be read ({error.strerror}).") from None
    with archive:
        yield Archive(archive)


def _ways(name: str) -> tuple[int, ...]:
    """Return the allowed compressions of a member, ours last. Rows are text; files of a home are encrypted, or Parquet.
    Members read before the signature is checked take no more bytes in memory than in the file."""
    return (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) if name.startswith(DATABASE) else (zipfile.ZIP_STORED,)


def _check_name(name: str) -> None:
    parts = name.split("/")
    expected = name == KEYS or name.startswith((DATABASE, HOME))
    if not expected or any(part in ("", ".", "..") for part in parts) or "\\" in name:
        raise InvalidFile("The backup has a member of a name that none has; nothing was made.")
