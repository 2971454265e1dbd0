"""Fetching a release: the manifest first, verified; then each file to a temporary name, verified, renamed."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from features_party.labels_service import LabelsService
from features_party.storage.home import place_folder
from shared.errors import Conflict, InvalidFile, MalformedManifest
from shared.message.bundle import ENVELOPE_SUFFIX, FOLDER_ENVELOPE, Bundle, check_bytes, trusted_manifest
from shared.message.manifest import Manifest
from shared.message.signing import VerifyingKey
from shared.service.cli import Progress
from shared.service.folders import fsync_folder

ChooseKey = Callable[[bytes], VerifyingKey]


@dataclass(frozen=True)
class Pulled:
    path: Path
    manifest: Manifest
    digest: str
    bytes: int


def pull(
    service: LabelsService, release: str, choose_key: ChooseKey, audience: str, out: Path, progress: Progress
) -> Pulled:
    """Bring release `release` to `out`: NAME.parquet with its envelope and prior beside it, or a folder of that name
    where the message has several parts. Nothing half-written is left, and nothing unverified gets its final name.

    Raises VerificationFailed kinds, Conflict (not published yet, or `out` holds another message), NotFound,
    Unavailable.
    """
    state = service.release(release).get("state")
    if state != "published":
        shown = state if isinstance(state, str) and len(state) < 40 else "unknown"
        raise Conflict(f"Release '{release}' is not published yet (its state is {shown}); try again later.")
    envelope = service.envelope(release)
    key = choose_key(envelope)
    manifest, digest = trusted_manifest(envelope, key, audience)
    if manifest.release != release:
        raise MalformedManifest("The labels party sent the manifest of another release than the one asked for.")
    several = len(manifest.message_files) > 1
    if out.is_dir() and not several:
        out = out / f"{release}.parquet"
    _refuse_other(out, key, digest, several)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidFile(f"The folder of '{out}' cannot be made ({error.strerror}).") from None
    # beside the target, so that the last step is a rename within one file system
    temporary = out.with_name(f".{out.name}.{secrets.token_hex(6)}")
    total = sum(entry.bytes for entry in manifest.files)
    try:
        temporary.mkdir(mode=0o700)
        before = 0
        for entry in manifest.files:
            target = temporary / entry.name
            service.download(release, entry, target, _share(progress, entry.name, before, total))
            check_bytes(target, entry)
            before += entry.bytes
        if several:
            (temporary / FOLDER_ENVELOPE).write_bytes(envelope)
            place_folder(temporary, out)
        else:
            _place_beside(temporary, manifest, envelope, out)
    except OSError as error:
        raise InvalidFile(f"The message cannot be written to '{out}' ({error.strerror}).") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return Pulled(out, manifest, digest, total)


def _share(progress: Progress, name: str, before: int, total: int) -> Callable[[int], None]:
    return lambda have: progress(name, (before + have) / total)


def _place_beside(temporary: Path, manifest: Manifest, envelope: bytes, out: Path) -> None:
    """The envelope goes first and the message last: whoever sees the message finds the rest complete."""
    bundle = Bundle(out)
    envelope_part = temporary / f"envelope{ENVELOPE_SUFFIX}"
    envelope_part.write_bytes(envelope)
    moves = [(envelope_part, out.with_name(out.name + ENVELOPE_SUFFIX))]
    for entry in sorted(manifest.files, key=lambda entry: entry.role == "message"):
        moves.append((temporary / entry.name, bundle.file_path(entry)))
    for source, target in moves:
        with source.open("rb") as file:
            os.fsync(file.fileno())
        source.replace(target)
    fsync_folder(out.parent)


def _refuse_other(out: Path, key: VerifyingKey, digest: str, several: bool) -> None:
    """Pulling the same release again is fine; another message is not overwritten."""
    bundle = Bundle(out)
    if several and out.exists() and not out.is_dir():
        raise Conflict(
            f"The message has several files and needs a folder, but '{out}' is a file; choose another --out."
        )
    if not bundle.envelope_path.exists():
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise Conflict(f"'{out}' exists and is not this message; choose another --out.")
        return
    known = None
    with contextlib.suppress(Exception):
        known = trusted_manifest(bundle.envelope(), key, None)[1]
    if known != digest:
        raise Conflict(f"'{out}' holds another message; choose another --out.")
    if several:
        shutil.rmtree(out)
