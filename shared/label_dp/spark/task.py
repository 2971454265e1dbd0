"""One job on numbered pieces of work: a task gets numbers and returns a record of each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from label_dp.errors import Unavailable

if TYPE_CHECKING:
    import pyarrow as pa


class TaskFailed(Exception):
    """A piece of work may be tried again: what failed (a disk, randomness, memory) does not depend on labels.

    It names the type of the error only: texts may quote what was read."""


def rows_of(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    """Yield rows as Python values."""
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


@contextmanager
def attempt() -> Iterator[None]:
    """Raise TaskFailed for any error."""
    try:
        yield
    except Exception as error:
        raise TaskFailed(type(error).__name__) from None


class SparkTask(ABC):
    """Picklable; called once for each task attempt. Records have the columns of `columns` and `problem`: the type of an
    error that labels or a draw may have decided, which must not be tried again, or nothing."""

    columns: ClassVar[dict[str, str]]  # by name: "long", "string" or "binary"

    @abstractmethod
    def one(self, number: int) -> dict[str, Any]:
        """Do the piece of work of that number."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """`batches` have numbers in their first column. Raises TaskFailed."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield self.record(number)

    def record(self, number: int) -> pa.RecordBatch:
        """Raises TaskFailed."""
        try:
            found = self.one(number)
        except (OSError, MemoryError, Unavailable) as error:
            raise TaskFailed(type(error).__name__) from None
        except Exception as error:
            found = {"number": number, "problem": type(error).__name__}
        return as_batch(found, self.columns)


def as_batch(record: dict[str, Any], columns: dict[str, str]) -> pa.RecordBatch:
    """One row, with a column `problem` at its end; what is not told is zero, or empty."""
    import pyarrow as pa

    kinds = {"long": pa.int64(), "string": pa.string(), "binary": pa.binary()}
    fields = [pa.field(name, kinds[kind]) for name, kind in (columns | {"problem": "string"}).items()]
    record = {name: {"long": 0, "string": "", "binary": b""}[kind] for name, kind in columns.items()} | record
    return pa.RecordBatch.from_pylist([record], schema=pa.schema(fields))
