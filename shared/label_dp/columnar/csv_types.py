"""Cells of a CSV file as unchanged text, and the types that preserve all of them.

An empty cell without quotes is missing; `NA`, `null` and the like are text. Their meaning depends on the kind of the
column, for example in the schema of a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

# missing values among numbers, booleans and times; text among text
MISSING_WORDS = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "N/A", "NA", "NULL",
    "NaN", "None", "n/a", "nan", "null",
)  # fmt: skip


def as_text(names: Sequence[str]) -> Any:
    """Return options of Arrow's CSV reader by which all of these columns are unchanged text."""
    import pyarrow as pa
    from pyarrow import csv

    return csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )


def exact_types(tables: Iterable[pa.Table], names: Sequence[str]) -> dict[str, pa.DataType]:
    """Choose for each text column the first type whose values print as every one of its cells. Whole numbers, numbers
    (3.0 too), booleans, dates; else text, as for 00037, 1.10, 1E1 or a column without a cell."""
    candidates: dict[str, list[pa.DataType]] = {}
    for table in tables:
        for name in names:
            cells = table[name].drop_null()
            if len(cells):
                candidates[name] = [kind for kind in candidates.get(name, _types()) if _prints_alike(cells, kind)]
    return {name: next(iter(candidates.get(name, ())), _types()[-1]) for name in names}


def exact_type(cells: pa.ChunkedArray) -> pa.DataType:
    """Choose the type of one column, as `exact_types`."""
    import pyarrow as pa

    return exact_types([pa.table({"cells": cells})], ["cells"])["cells"]


def _types() -> list[pa.DataType]:
    import pyarrow as pa

    return [pa.int64(), pa.float64(), pa.bool_(), pa.date32(), pa.string()]


def _prints_alike(cells: pa.ChunkedArray, kind: pa.DataType) -> bool:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        printed = cells.cast(kind).cast(pa.string())
    except pa.ArrowException:
        return False
    if pa.types.is_floating(kind):
        cells = pc.replace_substring_regex(cells, r"^(-?\d+)\.0$", r"\1")
    return bool(pc.all(pc.equal(printed, cells)).as_py() is not False)


def with_types(table: pa.Table, types: dict[str, pa.DataType]) -> pa.Table:
    """Cast the text columns in `types` to these."""
    for name, kind in types.items():
        at = table.column_names.index(name)
        table = table.set_column(at, name, table.column(at).cast(kind))
    return table
