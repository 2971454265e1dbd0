"""Rules of both home folders: readable by their owner only, files and names made durable, leftovers removed."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from label_dp.errors import Unavailable

OWN = (stat.S_IFREG, stat.S_IFDIR)
OTHERS = stat.S_IRWXG | stat.S_IRWXO
PUBLIC = ".pub"
LEFTOVER_SECONDS = 86_400.0  # an unfinished file older than this was left by a crash


def fsync_folder(path: Path) -> None:
    """Make the names inside a folder durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def reserve(path: Path, size: int) -> None:
    """Have the file system set `size` bytes aside for `path`. Raises OSError (no space)."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(handle, 0, size) if hasattr(os, "posix_fallocate") else os.truncate(handle, size)
    finally:
        os.close(handle)


def erase(path: Path) -> None:
    """Overwrite a file with zeros and remove it. Raises OSError."""
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
        file.flush()
        os.fsync(file.fileno())
    path.unlink()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def write_durably(path: Path, data: bytes, *, private: bool = False) -> None:
    """Write `data` beside `path`, then rename: a reader sees the old file or the whole new one. `private`: only its
    owner may read it, from its first byte on."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        with open(temporary, "wb", opener=_private if private else None) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise Unavailable(f"'{path}' cannot be written ({error.strerror}).") from None
    fsync_folder(path.parent)


def copy_file(source: Path, target: Path) -> None:
    """Copy `source` to the new file `target`; the kernel copies, or shares blocks if it can. Raises OSError."""
    with source.open("rb") as read, target.open("xb") as copy:
        remaining = os.fstat(read.fileno()).st_size
        with contextlib.suppress(OSError, AttributeError):  # two file systems, an old kernel, another system
            while remaining and (copied := os.copy_file_range(read.fileno(), copy.fileno(), remaining)):
                remaining -= copied
        if remaining:
            read.seek(0)
            copy.seek(0)
            shutil.copyfileobj(read, copy, 1 << 20)


def sync_tree(folder: Path) -> None:
    """Make every file directly inside `folder`, and its names, durable."""
    for path in folder.iterdir():
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    fsync_folder(folder)


def place_folder(temporary: Path, target: Path) -> None:
    """Rename a finished folder to its place; if a finished one is there already, the new one is dropped."""
    sync_tree(temporary)
    try:
        temporary.rename(target)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        if not target.is_dir():
            raise
    fsync_folder(target.parent)


def sweep(unfinished: Iterable[Path]) -> int:
    """Remove files and folders that a crash left over a day ago; returns how many."""
    removed = 0
    for path in unfinished:
        with contextlib.suppress(OSError):  # another process may sweep as well
            if time.time() - path.stat().st_mtime > LEFTOVER_SECONDS:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
                removed += 1
    return removed


def once_a_day(marker: Path) -> bool:
    """Return whether a day passed since the last True; `marker` is the file that records it."""
    with contextlib.suppress(FileNotFoundError):
        if time.time() - marker.stat().st_mtime < LEFTOVER_SECONDS:
            return False
    marker.touch(mode=0o600)
    return True


def make_private(home: Path, folders: Iterable[Path], setting: str) -> None:
    """Create the folders of a home, and make all of it readable by its owner only.

    A home that was open to others is walked once as a whole, without links and public keys; otherwise two levels of it.
    Raises Unavailable, which names the `setting` of another place, also if others may still read it.
    """
    try:
        for folder in (home, *folders):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if os.name == "posix":
            _check_link(home, setting)
            was_open = tighten(home, setting)
            for entry in home.iterdir():
                # a link's target lies outside the home, so it must be tightened; all else is tightened if possible
                deep = tighten(entry, setting, needed=entry.is_symlink()) or was_open
                for below in _below(entry, deep=deep):
                    tighten(below, setting, needed=False)
    except OSError as error:
        raise Unavailable(f"The home folder '{home}' cannot be used ({error.strerror}); set {setting}.") from None


def tighten(path: Path, setting: str, *, needed: bool = True) -> bool:
    """Remove all permissions of group and others; return whether there were any. Public keys are left as they are.
    Raises Unavailable if that is `needed` and not possible."""
    try:
        status = path.stat()
    except FileNotFoundError:  # a dangling link, or another process was quicker
        return False
    if path.suffix == PUBLIC or not status.st_mode & OTHERS or stat.S_IFMT(status.st_mode) not in OWN:
        return False
    with contextlib.suppress(PermissionError):
        path.chmod(stat.S_IMODE(status.st_mode) & ~OTHERS)
    with contextlib.suppress(FileNotFoundError):
        if needed and path.stat().st_mode & OTHERS:  # another user's, or a file system without permissions
            raise Unavailable(
                f"'{path}' can be read by other users of this machine, and this process cannot change that. Run "
                f"chmod -R go= on it as its owner, or set {setting} to a folder of this user."
            )
    return True


def private_file(path: Path, setting: str, *, make: bool = True) -> None:
    """Tighten an existing file; else `make` an empty one that only its owner may read. Raises Unavailable."""
    if os.name == "posix":
        if make:
            with contextlib.suppress(OSError):  # opening it later reports the fault
                os.close(os.open(path, os.O_RDONLY | os.O_CREAT, 0o600))
        tighten(path, setting)


def _check_link(home: Path, setting: str) -> None:
    """Refuse a link of another user: its owner decides where keys and labels go."""
    if home.is_symlink() and home.lstat().st_uid not in (os.geteuid(), 0):
        raise Unavailable(f"The home folder '{home}' is a link of another user; set {setting} to a folder of your own.")


def _below(folder: Path, *, deep: bool) -> Iterator[Path]:
    """Yield the entries of a folder without links, recursively if `deep`."""
    for name, folders, files in os.walk(folder):
        for entry in (*folders, *files):
            path = Path(name, entry)
            if not path.is_symlink():
                yield path
        if not deep:
            return
