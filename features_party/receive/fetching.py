"""The files of a message, fetched a few at a time into a folder that an interrupted pull finds again."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from features_party.receive.labels_service import LabelsService
from features_party.storage.home import INCOMING, Home
from label_dp.documents.arriving import Arriving
from label_dp.documents.manifest import FileEntry, Manifest
from label_dp.errors import InvalidFile, VerificationFailed
from label_dp.progress import Progress

AT_ONCE = 3  # files; one connection rarely fills a long way, and more of them harm others on it


class _Stopped(Exception):
    """Another file failed; private to this module."""


def fetch_files(service: LabelsService, manifest: Manifest, folder: Path, progress: Progress) -> None:
    """Bring the files of a verified `manifest` into `folder`, each verified while it comes, and durable.

    What lies there already is kept. The first failure stops the others. Raises DigestMismatch, InvalidFile (no room),
    Unavailable, NotFound, OSError.
    """
    _require_room(manifest, folder)
    had, total = dict.fromkeys((entry.name for entry in manifest.files), 0), sum(f.bytes for f in manifest.files)
    lock, stopped = threading.Lock(), threading.Event()

    def received(name: str, have: int) -> None:
        if stopped.is_set():
            raise _Stopped
        with lock:
            had[name] = have
            progress(name, sum(had.values()) / total)

    def one(entry: FileEntry) -> None:
        os.utime(folder)  # it is in use: the sweep passes it by
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
    """The folder in which the message that will be called `place` is put together, for this process alone.

    What an interrupted pull left in it is there. It stays where this one is interrupted too, for a day; what was
    refused, or did not fit, does not.
    """
    folder, handle = _locked(home.messages / f"{INCOMING}{place}") or _fresh(home)
    try:
        yield folder
    except (VerificationFailed, OSError, InvalidFile):
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        with contextlib.suppress(OSError):  # nothing came, or it has its place now
            folder.rmdir()
        os.close(handle)


def _locked(folder: Path) -> tuple[Path, int] | None:
    """None where another process has it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    handle = -1
    with contextlib.suppress(OSError):  # somebody else has it, or a file system without locks
        handle = os.open(folder, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if folder.stat().st_ino == os.fstat(handle).st_ino:  # it was not finished meanwhile
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
