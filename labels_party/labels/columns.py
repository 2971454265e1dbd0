"""Columns of examples and labels in the vault: ids, units and domain positions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from labels_party.labels.parsing import ID, TIME, UNIT

if TYPE_CHECKING:
    import pyarrow as pa

POSITION = "position"
NONE = np.uint32(0xFFFFFFFF)  # in place of a position: a record without a label


def example_schema(unit: bool = False, time: bool = False) -> pa.Schema:
    """Return the schema of stored examples: id, its unit in a population with units, and its time (Unix seconds) where
    events count from it."""
    import pyarrow as pa

    types = {ID: pa.string()} | ({UNIT: pa.string()} if unit else {}) | ({TIME: pa.int64()} if time else {})
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in types.items()])


def label_schema(unit: bool = False) -> pa.Schema:
    """Return the schema of stored labels: id, domain position and, if the records carry it, the unit."""
    import pyarrow as pa

    return example_schema(unit).insert(1, pa.field(POSITION, pa.uint32(), nullable=False))


def label_rows(ids: pa.Array, positions: npt.NDArray[np.integer], units: pa.Array | None = None) -> pa.RecordBatch:
    """Build stored labels of domain positions int[n] (below 2³²)."""
    import pyarrow as pa

    columns = [ids, pa.array(positions.astype(np.uint32, copy=False))]
    if units is None:
        return pa.record_batch(columns, schema=label_schema())
    return pa.record_batch([*columns, units], schema=label_schema(unit=True))


def positions_of(rows: pa.RecordBatch) -> npt.NDArray[np.uint32]:
    """Return the domain positions uint32[n] of stored labels; inverse of `label_rows`."""
    column: Any = rows.column(POSITION).to_numpy(zero_copy_only=False)
    return np.asarray(column, np.uint32)
