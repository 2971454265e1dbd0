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
from shared.documents.bundle import ENVELOPE_SUFFIX, FOLDER_ENVELOPE, Bundle, check_bytes, verify
from shared.documents.kinds.registry import trusted_answer
from shared.documents.manifest import Manifest
from shared.documents.signing import VerifyingKey
from shared.errors import Conflict, InvalidFile, InvalidInput, LabelDPError, MalformedAnswer, MalformedManifest
from shared.service.cli import Progress
from shared.service.folders import fsync_folder, place_folder

ChooseKey = Callable[[bytes], VerifyingKey]
ENDED = ("failed", "declined", "cancelled")


@dataclass(frozen=True)
class Pulled:
    """A message in its place; `fresh` is False where it was there already, byte for byte."""

    path: Path
    manifest: Manifest
    digest: str
    bytes: int
    fresh: bool


def pull(
    service: LabelsService,
    release: str,
    choose_key: ChooseKey,
    audience: str,
    out: Path,
    progress: Progress,
    *,
    force: bool = False,
) -> Pulled:
    """Bring release `release` to `out`: NAME.parquet with its envelope and prior beside it, or a folder of that name
    where the message has several parts. Nothing half-written is left, and nothing unverified gets its final name.

    The same message there already stays, or is fetched again where it is damaged; anything else there is replaced with
    `force` only. Raises VerificationFailed kinds, Conflict (not published yet), InvalidInput (`out` is taken),
    NotFound, Unavailable.
    """
    _require_published(f"Release '{release}'", service.release_state(release).get("state"))
    envelope = service.manifest(release)
    key = choose_key(envelope)
    manifest, digest = Manifest.trusted(envelope, key, audience)
    if manifest.id != release:
        raise MalformedManifest("The labels party sent the manifest of another release than the one asked for.")
    several = len(manifest.message_files) > 1
    if out.is_dir() and not several:
        out = out / f"{release}.parquet"
    total = sum(entry.bytes for entry in manifest.files)
    if _intact(out, key, audience, digest):
        return Pulled(out, manifest, digest, total, fresh=False)
    if not force:
        _refuse_other(out, key, digest)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidFile(f"The folder of '{out}' cannot be made ({error.strerror}).") from None
    # beside the target, so that the last step is a rename within one file system
    temporary = out.with_name(f".{out.name}.{secrets.token_hex(6)}")
    try:
        temporary.mkdir(mode=0o700)
        free = shutil.disk_usage(temporary).free
        if total > free:
            raise InvalidFile(
                f"The message has {total} bytes, and '{out.parent}' has room for {free}. Make room first."
            )
        before = 0
        for entry in manifest.files:
            target = temporary / entry.name
            service.download(release, entry, target, _share(progress, entry.name, before, total))
            check_bytes(target, entry)
            before += entry.bytes
        _place(temporary, manifest, envelope, out, several)
    except OSError as error:
        raise InvalidFile(f"The message cannot be written to '{out}' ({error.strerror}).") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return Pulled(out, manifest, digest, total, fresh=True)


def pull_answer(service: LabelsService, answer: str, choose_key: ChooseKey, audience: str) -> bytes:
    """The envelope of answer `answer`, verified. Raises VerificationFailed kinds, Conflict (not published yet),
    NotFound, Unavailable."""

    _require_published(f"Answer '{answer}'", service.answer(answer).get("state"))
    envelope = service.answer_document(answer)
    if trusted_answer(envelope, choose_key(envelope), audience)[0].id != answer:
        raise MalformedAnswer("The labels party sent another answer than the one asked for.")
    return envelope


def _require_published(what: str, state: object) -> None:
    if state == "published":
        return
    shown = state if isinstance(state, str) and len(state) < 40 and state.isprintable() else "unknown"
    if shown in ENDED:
        raise Conflict(f"{what} is {shown} and will not be published; ask the labels party why.")
    raise Conflict(f"{what} is not published yet (its state is {shown}); try again later.")


def _share(progress: Progress, name: str, before: int, total: int) -> Callable[[int], None]:
    return lambda have: progress(name, (before + have) / total)


def _place(temporary: Path, manifest: Manifest, envelope: bytes, out: Path, several: bool) -> None:
    """Give the verified files their names; what had them before goes."""
    aside = out.with_name(f".{out.name}.{secrets.token_hex(6)}")
    if out.is_dir() or (several and out.exists()):
        out.rename(aside)
    try:
        if several:
            (temporary / FOLDER_ENVELOPE).write_bytes(envelope)
            place_folder(temporary, out)
        else:
            _place_beside(temporary, manifest, envelope, out)
    finally:
        if aside.is_dir():
            shutil.rmtree(aside, ignore_errors=True)
        aside.unlink(missing_ok=True)


def _place_beside(temporary: Path, manifest: Manifest, envelope: bytes, out: Path) -> None:
    """The envelope goes first and the message last: whoever sees the message finds the rest complete."""
    bundle = Bundle(out)
    envelope_part = temporary / f"envelope{ENVELOPE_SUFFIX}"
    envelope_part.write_bytes(envelope)
    moves = [(envelope_part, out.with_name(out.name + ENVELOPE_SUFFIX))]
    for entry in sorted(manifest.files, key=lambda entry: entry.role == "message"):
        moves.append((temporary / entry.name, bundle.file_path(entry)))
    if manifest.prior_file is None:  # of a message that was here before
        out.with_name(out.stem + ".prior.parquet").unlink(missing_ok=True)
    for source, target in moves:
        with source.open("rb") as file:
            os.fsync(file.fileno())
        source.replace(target)
    fsync_folder(out.parent)


def _intact(out: Path, key: VerifyingKey, audience: str, digest: str) -> bool:
    try:
        found = verify(out, key, audience)
    except LabelDPError:
        return False
    return found.digest == digest and (found.manifest.prior_file is None) == (found.prior_path is None)


def _refuse_other(out: Path, key: VerifyingKey, digest: str) -> None:
    """Nothing but this very message, damaged, is replaced. Raises InvalidInput."""
    bundle = Bundle(out)
    if not bundle.envelope_path.exists() and (not out.exists() or (out.is_dir() and not any(out.iterdir()))):
        return
    known = None
    with contextlib.suppress(LabelDPError):
        known = Manifest.trusted(bundle.envelope(), key, None)[1]
    if known != digest:
        raise InvalidInput(
            f"'{out}' exists already and is not this message. Give --force to replace it, or choose another name."
        )
