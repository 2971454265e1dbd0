"""Examples and labels as they are stored: ids, and beside them units and masked labels. Pure: the keys are given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from labels_party.labels.digests import mask
from labels_party.labels.parsing import ID, UNIT

if TYPE_CHECKING:
    import pyarrow as pa


def example_schema(unit: bool = False) -> pa.Schema:
    """Stored examples: id and, in a population with units, its unit."""
    import pyarrow as pa

    names = [ID, UNIT] if unit else [ID]
    return pa.schema([pa.field(name, pa.string(), nullable=False) for name in names])


def masked_schema(unit: bool = False) -> pa.Schema:
    """Stored labels: id, masked domain position and, where the records carry it, the unit."""
    import pyarrow as pa

    return example_schema(unit).insert(1, pa.field("masked", pa.uint32(), nullable=False))


def masked_rows(
    ids: pa.Array, positions: npt.NDArray[np.integer], key: bytes, units: pa.Array | None = None
) -> pa.RecordBatch:
    """Stored labels of domain positions int[n] (below 2³²) under the key of their object."""
    import pyarrow as pa

    columns = [ids, pa.array(mask(ids, positions, key))]
    if units is None:
        return pa.record_batch(columns, schema=masked_schema())
    return pa.record_batch([*columns, units], schema=masked_schema(unit=True))


def positions_of(rows: pa.RecordBatch, key: bytes) -> npt.NDArray[np.uint32]:
    """Domain positions uint32[n] of stored labels; inverse of `masked_rows`."""
    masked: Any = rows.column(1).to_numpy(zero_copy_only=False)
    return mask(rows.column(0), masked, key)
