"""Parts of sealed labels that a task reads: whole row groups of one object, in the order of ids."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from labels_party.labels.columns import POSITION, positions_of
from labels_party.labels.vault import read_object

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK = 1 << 17


@dataclass(frozen=True)
class Slice:
    """Row groups `first` … `last` of the object `name` at `path`, under the key of its batch. `rows` and `id_bytes` are
    public."""

    path: str
    name: str
    key: bytes = field(repr=False)
    first: int
    last: int
    rows: int
    id_bytes: int


@dataclass(frozen=True)
class SlicedLabels:
    """`ends`: positions between which labels are clipped, and counted from the first; None: as they are."""

    slices: tuple[Slice, ...]
    ends: tuple[int, int] | None

    def chunks(self, number: int) -> Iterator[tuple[pa.Array, npt.NDArray[np.int64]]]:
        """(ids, domain positions int64[m]) of the slice `number`. Raises OSError."""
        for rows in self._rows(number, None):
            yield rows.column(0), self._positions(rows)

    def positions(self, number: int) -> Iterator[npt.NDArray[np.int64]]:
        """As `chunks`, without ids. Raises OSError."""
        return map(self._positions, self._rows(number, [POSITION]))

    def _rows(self, number: int, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        part = self.slices[number]
        with (
            read_object(Path(part.path), part.key, part.name) as source,
            pq.ParquetFile(source, pre_buffer=False) as file,
        ):
            groups = list(range(part.first, part.last + 1))
            yield from file.iter_batches(batch_size=CHUNK, row_groups=groups, columns=columns)

    def _positions(self, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
        index = positions_of(rows).astype(np.int64)
        return index if self.ends is None else np.clip(index, *self.ends) - self.ends[0]
