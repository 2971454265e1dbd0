"""Habits of both home folders: readable by their owner only, names made durable, one signing key made on first use."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from shared.errors import Unavailable
from shared.message.signing import SigningKey


def fsync_folder(path: Path) -> None:
    """Make the names inside a folder durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_private(home: Path, folders: Iterable[Path], setting: str) -> None:
    """Create the folders of a home. Raises Unavailable naming the setting that moves it elsewhere."""
    try:
        for folder in (home, *folders):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise Unavailable(f"The home folder '{home}' cannot be used ({error.strerror}); set {setting}.") from None


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
