"""Parallel download of a message's files into a folder that a later pull resumes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from features_party.receive.labels_service import LabelsService
from features_party.storage.home import INCOMING, Home
from label_dp.documents.arriving import Arriving
from label_dp.documents.manifest import FileEntry, Manifest
from label_dp.errors import InvalidFile, VerificationFailed
from label_dp.progress import Progress

AT_ONCE = 3  # files; one connection rarely fills a long link, and more would crowd out others


def fetch_files(service: LabelsService, manifest: Manifest, folder: Path, progress: Progress) -> None:
    """Download the files of a verified `manifest` into `folder`, durably, each verified as it arrives.

    Present files are kept. The first failure stops the others. Raises DigestMismatch, InvalidFile (no room),
    Unavailable, NotFound, OSError.
    """
    _require_room(manifest, folder)
    had, total = dict.fromkeys((entry.name for entry in manifest.files), 0), sum(f.bytes for f in manifest.files)
    lock, stopped = threading.Lock(), threading.Event()

    def received(name: str, have: int) -> None:
        if stopped.is_set():
            raise CancelledError  # the download of another file failed
        with lock:
            had[name] = have
            progress(name, sum(had.values()) / total)

    def one(entry: FileEntry) -> None:
        os.utime(folder)  # in use: the sweep skips it
        with Arriving(folder / entry.name, entry) as part:
            service.download(manifest.id, part, partial(received, entry.name))

    with ThreadPoolExecutor(min(AT_ONCE, len(manifest.files)), "pull") as pool:
        try:
            for future in as_completed([pool.submit(one, entry) for entry in manifest.files]):
                future.result()
        except BaseException:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


@contextmanager
def incoming(home: Home, place: str) -> Iterator[Path]:
    """Lock the folder that collects the message `place`, for this process alone. It keeps the files of an interrupted
    pull for a day. It is removed if the message is refused or does not fit."""
    folder, handle = _locked(home.messages / f"{INCOMING}{place}") or _fresh(home)
    try:
        yield folder
    except (VerificationFailed, OSError, InvalidFile):
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        with contextlib.suppress(OSError):  # files remain, or it was renamed
            folder.rmdir()
        os.close(handle)


def _locked(folder: Path) -> tuple[Path, int] | None:
    """Lock the folder; None if another process has it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    handle = -1
    with contextlib.suppress(OSError):  # locked by another process, or a file system without locks
        handle = os.open(folder, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if folder.stat().st_ino == os.fstat(handle).st_ino:  # still the folder of that name
            return folder, handle
    if handle >= 0:
        os.close(handle)
    return None


def _fresh(home: Home) -> tuple[Path, int]:
    folder = home.incoming(home.messages)
    folder.mkdir(mode=0o700)
    return folder, os.open(folder, os.O_RDONLY)


def _require_room(manifest: Manifest, folder: Path) -> None:
    there = sum(path.stat().st_size for path in folder.iterdir())
    missing, free = sum(entry.bytes for entry in manifest.files) - there, shutil.disk_usage(folder).free
    if missing > free:
        raise InvalidFile(
            f"The message lacks {missing} bytes, and '{folder.parent}' has room for {free}. Make room first."
        )
