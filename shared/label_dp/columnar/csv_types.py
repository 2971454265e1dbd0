"""Cells of a CSV file as text, exactly as they stand, and the types that change none of them.

A cell without quotes that is empty is missing; `NA`, `null` and the like are text. What text means is for whoever knows
the kind of its column, such as the schema of a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

# a missing value among numbers, booleans and times; a text among texts
MISSING_WORDS = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "N/A", "NA", "NULL",
    "NaN", "None", "n/a", "nan", "null",
)  # fmt: skip


def as_text(names: Sequence[str]) -> Any:
    """Options of Arrow's CSV reader by which all of these columns are text as it stands."""
    import pyarrow as pa
    from pyarrow import csv

    return csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )


def exact_types(tables: Iterable[pa.Table], names: Sequence[str]) -> dict[str, pa.DataType]:
    """For each of these text columns the first type whose values print as every one of its cells: whole numbers,
    numbers (3.0 too), booleans, dates; else text, as for 00037, 1.10, 1E1 or a column without a cell."""
    left: dict[str, list[pa.DataType]] = {}
    for table in tables:
        for name in names:
            cells = table[name].drop_null()
            if len(cells):
                left[name] = [kind for kind in left.get(name, _types()) if _prints_alike(cells, kind)]
    return {name: next(iter(left.get(name, ())), _types()[-1]) for name in names}


def exact_type(cells: pa.ChunkedArray) -> pa.DataType:
    """The same of one column."""
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
    """The table with its text columns `types` as these."""
    for name, kind in types.items():
        at = table.column_names.index(name)
        table = table.set_column(at, name, table.column(at).cast(kind))
    return table
