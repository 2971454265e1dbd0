"""Feature columns in the few bytes of them that a training sees, so that a table of many rows fits into memory.

Encoded features are 32-bit floats and places of texts (training/encoding.py), and come out the same.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def narrowed(table: pa.Table, kept: Collection[str]) -> pa.Table:
    """With 64-bit numbers as 32-bit floats, and texts as dictionaries; the columns `kept` as they are."""
    for at, field in enumerate(table.schema):
        if field.name not in kept:
            table = table.set_column(at, field.name, _narrow(table.column(at)))
    return table


def _narrow(column: Any) -> Any:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.dictionary_encode()
    if pa.types.is_float64(kind):
        return column.cast(pa.float32())
    if pa.types.is_int64(kind) or pa.types.is_uint64(kind):
        # by way of 64-bit floats, as in the encoding: two roundings can differ from one
        return column.cast(pa.float64(), safe=False).cast(pa.float32())
    return column
