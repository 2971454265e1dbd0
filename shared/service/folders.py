"""Habits of both home folders: readable by their owner only, names made durable, one signing key made on first use."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from shared.documents.signing import SigningKey
from shared.errors import Unavailable

OTHERS = stat.S_IRWXG | stat.S_IRWXO
PUBLIC = ".pub"


def fsync_folder(path: Path) -> None:
    """Make the names inside a folder durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_private(home: Path, folders: Iterable[Path], setting: str) -> None:
    """Create the folders of a home, and make it and what lies in it readable by its owner only.

    A home that was open to others is looked through once, all of it but links and public keys; else its entries and
    their own. Raises Unavailable naming the setting that moves it elsewhere, also where others may still read it.
    """
    try:
        for folder in (home, *folders):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if os.name == "posix":
            _check_link(home, setting)
            was_open = tighten(home, setting)
            for entry in home.iterdir():
                # what a link leads to is not behind the home's own door; all else is, so that it is tightened if it can
                deep = tighten(entry, setting, needed=entry.is_symlink()) or was_open
                for below in _below(entry, deep=deep):
                    tighten(below, setting, needed=False)
    except OSError as error:
        raise Unavailable(f"The home folder '{home}' cannot be used ({error.strerror}); set {setting}.") from None


def tighten(path: Path, setting: str, *, needed: bool = True) -> bool:
    """Take from others than its owner what they may do with a file or folder; whether they could do anything.

    Raises Unavailable where that is `needed` and not possible. A public key, which is there to be given away, stays as
    it is.
    """
    try:
        found = path.stat()
    except FileNotFoundError:  # a link that leads nowhere, or another process was quicker
        return False
    if path.suffix == PUBLIC or not found.st_mode & OTHERS or not _ours(found.st_mode):
        return False
    with contextlib.suppress(PermissionError):
        path.chmod(stat.S_IMODE(found.st_mode) & ~OTHERS)
    with contextlib.suppress(FileNotFoundError):
        if needed and path.stat().st_mode & OTHERS:  # it is somebody else's, or its file system knows no permissions
            raise Unavailable(
                f"'{path}' can be read by other users of this machine, and this process cannot change that. Run "
                f"chmod -R go= on it as its owner, or set {setting} to a folder of this user."
            )
    return True


def private_file(path: Path, setting: str, *, make: bool = True) -> None:
    """Tighten a file that is there; else `make` an empty one that its owner alone may read. Raises Unavailable."""
    if os.name == "posix":
        if make:
            with contextlib.suppress(OSError):  # whoever opens it says what is wrong
                os.close(os.open(path, os.O_RDONLY | os.O_CREAT, 0o600))
        tighten(path, setting)


def _ours(mode: int) -> bool:
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def _check_link(home: Path, setting: str) -> None:
    """Whoever owns a link decides where keys and labels go."""
    if home.is_symlink() and home.lstat().st_uid not in (os.geteuid(), 0):
        raise Unavailable(f"The home folder '{home}' is a link of another user; set {setting} to a folder of your own.")


def _below(folder: Path, *, deep: bool) -> Iterator[Path]:
    """What lies in a folder, links left out: all of it, or its own entries."""
    for name, folders, files in os.walk(folder):
        for entry in (*folders, *files):
            path = Path(name, entry)
            if not path.is_symlink():
                yield path
        if not deep:
            return


def own_key(private: Path, public: Path) -> SigningKey:
    """The party's signing key, made on first use; its public half lies beside it for the other side."""
    if not private.exists():
        # a second process may be quicker; its key then is the key
        with contextlib.suppress(FileExistsError):
            SigningKey.generate().save(private, public)
        fsync_folder(private.parent)
    key = SigningKey.load(private)
    if not public.exists():
        public.write_bytes(key.public.pem)
    return key
