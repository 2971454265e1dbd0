"""Key services: holders of the wrapping keys of batches and of the secret for digests of ids.

Files of the home are the usual one. A key service wraps inside and does not release wrapping keys. Every id needs the
digest secret, so a service releases a working key once, at the start, which stays in memory.
"""

from __future__ import annotations

from typing import Protocol

from label_dp.errors import Unavailable
from labels_party.labels.ciphered import disclosed, enclosed
from labels_party.storage.files import Home
from labels_party.storage.secrets import Secrets
from labels_party.storage.wrapping import WrappingKeys


class KeyService(Protocol):
    """Numbered wrapping keys; `place` is bound into the wrapped key. All methods raise Unavailable."""

    def make(self, number: int) -> None:
        """Create wrapping key `number` durably. Does nothing if it exists."""

    def wrap(self, number: int, plain: bytes, place: str) -> bytes: ...

    def unwrap(self, number: int, wrapped: bytes, place: str) -> bytes:
        """Unwrap a key. Raises DamagedObject if it was wrapped otherwise."""

    def forget_before(self, number: int) -> list[int]:
        """Erase the keys of lower numbers; return these numbers."""

    def called(self, number: int) -> str:
        """Return the display name of key `number`."""

    def require(self, number: int) -> None:
        """Raise Unavailable if keys of a database in use are missing: new ones would hide the loss."""

    def secret(self) -> Secrets:
        """Return the secret of digests, created at first use."""


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
