"""The port: immutable objects under keys such as "bat_1/sealed-2.parquet".

A writer takes a name that nobody else takes, and a row of the database says which names count. So nothing is ever
written over, and what no row names is a leftover.
"""

from __future__ import annotations

import mmap
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, BinaryIO

from label_dp.errors import Unavailable


class StoreRefused(Unavailable):
    """The store answered, and not with a failure that passes: it may have judged what it got, such as its length."""


class DamagedObject(Unavailable):
    """What is stored is not what was put there."""


@dataclass(frozen=True)
class Stored:
    """A key, and when it was written, in seconds of the epoch."""

    key: str
    modified: float


class Objects(ABC):
    """What is put is durable when the call returns; what is read is what was put, or FileNotFoundError, or
    Unavailable."""

    @abstractmethod
    def writing(self, key: str) -> AbstractContextManager[BinaryIO]:
        """A new object, there at the end of the block; none where the block raises. Raises OSError (a disk),
        Unavailable (the store)."""

    @abstractmethod
    def reading(self, key: str) -> AbstractContextManager[Any]:
        """A file of Arrow, to be read anywhere."""

    @abstractmethod
    def mapped(self, key: str) -> mmap.mmap | bytes:
        """The whole object in memory that the system can take back."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """No error where there is none."""

    @abstractmethod
    def listed(self, prefix: str) -> list[Stored]:
        """In the order of keys, those below `prefix`: the name of a folder with its slash, or "" for all."""
