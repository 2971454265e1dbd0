"""Our signing key as its file has it, also after another process handed over to the next one."""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from label_dp.documents.signing import SigningKey
from label_dp.store.folders import erase, fsync_folder, write_durably


class FiledKey(SigningKey):
    """Looks at its file at each use, and reads it where it was replaced. Whoever names the key in what is then signed
    takes `now()`."""

    def __init__(self, path: Path) -> None:
        object.__setattr__(self, "path", path)  # a signing key is frozen
        object.__setattr__(self, "read", (None, None))

    @property
    def key(self) -> Ed25519PrivateKey:
        return self.now().key

    def now(self) -> SigningKey:
        path: Path = self.__dict__["path"]
        found = path.stat()
        seen = (found.st_mtime_ns, found.st_ino, found.st_size)
        then, key = self.__dict__["read"]
        if then == seen:
            return SigningKey(key)
        read = SigningKey.load(path)
        object.__setattr__(self, "read", (seen, read.key))
        return read


def next_path(private: Path) -> Path:
    """Where the next key lies until the old one has handed over to it."""
    return private.with_name("signing-next.key")


def _retired(private: Path) -> Path:
    return private.with_name("signing-retired.key")


def forget_retired(private: Path) -> None:
    """Erase what a stop in the middle of `promote` left of the old key."""
    if not _retired(private).exists():
        return
    if _retired(private).samefile(private):
        _retired(private).unlink()
    else:
        erase(_retired(private))


def promote(private: Path, public: Path) -> SigningKey:
    """The next key is the key; the old one is overwritten, and nothing is signed with it again."""
    following = next_path(private)
    key = SigningKey.load(following)
    forget_retired(private)
    os.link(private, _retired(private))  # services that run find one key or the other
    following.replace(private)
    fsync_folder(private.parent)
    forget_retired(private)
    write_durably(public, key.public.pem)
    return key
