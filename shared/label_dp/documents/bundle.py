"""Message on disk: `NAME.parquet` with `NAME.parquet.dsse.json`, or a folder with `manifest.dsse.json`.

`verify` keeps the order of trust of `shared/README.md`: the signed manifest first, the bytes of every file last; only
afterwards may a Parquet reader see one of them. It writes nothing.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from label_dp.documents.manifest import ENVELOPE_FILE, SIGNED_SUFFIX, FileEntry, Manifest
from label_dp.documents.rehearsal import Rehearsal
from label_dp.documents.signed import MAX_ENVELOPE_BYTES
from label_dp.documents.signing import VerifyingKey, is_rehearsal
from label_dp.errors import DigestMismatch, InvalidFile

ENVELOPE_SUFFIX = SIGNED_SUFFIX
FOLDER_ENVELOPE = ENVELOPE_FILE
CHUNK = 1 << 20


@dataclass(frozen=True)
class Bundle:
    """Paths of the parts of a message."""

    path: Path

    @property
    def is_folder(self) -> bool:
        return self.path.is_dir()

    @property
    def envelope_path(self) -> Path:
        return self.path / FOLDER_ENVELOPE if self.is_folder else self.path.with_name(self.path.name + ENVELOPE_SUFFIX)

    def file_path(self, entry: FileEntry) -> Path:
        """Return the path of a file. Names in a manifest have no separators; its schema checks that."""
        if self.is_folder:
            return self.path / entry.name
        return self.path if entry.role == "message" else self.path.with_name(self.path.stem + ".prior.parquet")

    def envelope(self) -> bytes:
        try:
            with open_file(self.envelope_path) as file:
                return file.read(MAX_ENVELOPE_BYTES + 1)
        except OSError as error:
            raise InvalidFile(
                f"The signed manifest '{self.envelope_path}' cannot be read ({error.strerror}); "
                "it must lie beside the message."
            ) from None


def open_file(path: Path) -> BinaryIO:
    """Open a regular file: reading a pipe might never end. Raises OSError."""
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115 - the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is no regular file")
    return file


@dataclass(frozen=True)
class VerifiedMessage:
    """Message with checked signature, audience and bytes."""

    manifest: Manifest
    digest: str
    envelope: bytes
    paths: tuple[Path, ...]
    prior_path: Path | None


@dataclass(frozen=True)
class SignedMessage:
    """Message with a verified manifest, but unchecked files."""

    bundle: Bundle
    manifest: Manifest
    digest: str
    envelope: bytes

    def check(self, copy_into: Path | None = None) -> VerifiedMessage:
        """Compare every file with the manifest, copying on the way if asked. Raises DigestMismatch, InvalidFile."""
        paths: list[Path] = []
        prior_path = None
        for entry in self.manifest.files:
            source = self.bundle.file_path(entry)
            if entry.role == "prior" and not source.exists():
                continue  # the prior is a convenience for the receiver; the manifest alone suffices for corrections
            target = copy_into / entry.name if copy_into is not None else None
            check_bytes(source, entry, target)
            if entry.role == "message":
                paths.append(target or source)
            else:
                prior_path = target or source
        if copy_into is not None:
            (copy_into / FOLDER_ENVELOPE).write_bytes(self.envelope)
        return VerifiedMessage(self.manifest, self.digest, self.envelope, tuple(paths), prior_path)

    def copy(self, folder: Path) -> VerifiedMessage:
        """As `check`, reading each byte once while copying into `folder`, which is removed on failure."""
        folder.mkdir(parents=True, mode=0o700)
        try:
            return self.check(folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def check_bytes(path: Path, entry: FileEntry, copy_to: Path | None = None) -> None:
    """Compare length and SHA-256 of `path` with the manifest, copying on the way if asked. Raises DigestMismatch."""
    hasher, size = hashlib.sha256(), 0
    try:
        with open_file(path) as source:
            target = copy_to.open("wb") if copy_to is not None else None
            try:
                while (chunk := source.read(CHUNK)) and size <= entry.bytes:
                    size += len(chunk)
                    hasher.update(chunk)
                    if target is not None:
                        target.write(chunk)
                if target is not None:
                    target.flush()
                    os.fsync(target.fileno())
            finally:
                if target is not None:
                    target.close()
    except OSError as error:
        raise InvalidFile(f"'{path}' cannot be read or copied ({error.strerror}).") from None
    if size != entry.bytes or hasher.hexdigest() != entry.sha256:
        raise changed_file(path.name)


def changed_file(name: str) -> DigestMismatch:
    """Return the error for a file that differs from the manifest."""
    return DigestMismatch(f"'{name}' does not match the signed manifest: it was changed or cut short. Pull it again.")


def verify(path: Path, key: VerifyingKey, audience: str | None, *, rehearsals: bool = False) -> VerifiedMessage:
    """Verify the message at `path` without parsing its rows and without writing anything; `rehearsals` are refused by
    default. Raises the VerificationFailed kind of the broken rule, or InvalidFile if a part is missing."""
    return open_message(path, key, audience, rehearsals=rehearsals).check()


def open_message(path: Path, key: VerifyingKey, audience: str | None, *, rehearsals: bool = False) -> SignedMessage:
    """Verify the signed manifest of the message at `path`; no byte of its files is read. Raises as `verify`."""
    if not path.exists():
        raise InvalidFile(f"There is no message at '{path}'.")
    bundle = Bundle(path)
    envelope = bundle.envelope()
    form = Rehearsal if rehearsals and is_rehearsal(envelope) else Manifest
    manifest, payload_digest = form.trusted(envelope, key, audience)
    if not bundle.is_folder and len(manifest.message_files) != 1:
        raise InvalidFile(
            "This message has several files: keep them in one folder with their manifest.dsse.json and name the folder."
        )
    return SignedMessage(bundle, manifest, payload_digest, envelope)
