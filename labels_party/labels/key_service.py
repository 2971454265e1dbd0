"""Holders of the party's keys at rest: the wrapping keys of batches, and the secret that digests of ids are made with.

Files of the home are the usual way. A key service keeps wrapping keys to itself and wraps where it is. The secret of
digests is used for every id, so a service gives a working key once, at the start; it stays in memory then.
"""

from __future__ import annotations

from typing import Protocol

from label_dp.errors import Unavailable
from labels_party.labels.ciphered import disclosed, enclosed
from labels_party.storage.files import Home
from labels_party.storage.secrets import Secrets
from labels_party.storage.wrapping import WrappingKeys


class KeyService(Protocol):
    """Wrapping keys have numbers; `place` is bound into what is wrapped. All raise Unavailable."""

    def make(self, number: int) -> None:
        """Make the key of that number, durable; nothing where there is one."""

    def wrap(self, number: int, plain: bytes, place: str) -> bytes: ...

    def unwrap(self, number: int, wrapped: bytes, place: str) -> bytes:
        """Raises DamagedObject for what was not wrapped so."""

    def forget_before(self, number: int) -> list[int]:
        """Erase the keys of lower numbers; returns theirs."""

    def called(self, number: int) -> str:
        """What people know the key of that number by."""

    def require(self, number: int) -> None:
        """Refuse to go on without the keys that a database in use needs: new ones would hide that those are lost."""

    def secret(self) -> Secrets:
        """The secret, made at the first use."""


class FileKeys(WrappingKeys):
    """Keys as files of the home."""

    def __init__(self, home: Home) -> None:
        super().__init__(home.keys)
        self.home = home

    def wrap(self, number: int, plain: bytes, place: str) -> bytes:
        return enclosed(self.get(number), plain, place)

    def unwrap(self, number: int, wrapped: bytes, place: str) -> bytes:
        return disclosed(self.get(number), wrapped, place)

    def called(self, number: int) -> str:
        return str(self.path(number))

    def require(self, number: int) -> None:
        for path in (self.home.secret_path, self.path(number)):
            if not path.exists():
                raise Unavailable(
                    f"'{path}' is missing; restore it from the backup of this folder. Nothing was changed."
                )

    def secret(self) -> Secrets:
        return self.home.secrets()
