"""From what a caller sent to ids and domain positions. Every refusal names row, field and rule, never the value."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from shared.domain import Domain
from shared.errors import InvalidFile, InvalidRows, InvalidTable, RowProblem
from shared.tables import canonical_ids, read_table, refuse_duplicates

if TYPE_CHECKING:
    import pyarrow as pa

DECODED_FLOOR, DECODED_RATIO = 1 << 26, 16  # ids differ, so an honest file hardly shrinks by more than this
ID, LABEL = "example_id", "label"
FINITE = "must be a finite number"
NUMBER = "must be a number"
OUTSIDE = "lies outside the label domain, whose out-of-domain rule is 'refuse'"


def parse_json(body: bytes, fields: tuple[str, ...]) -> pa.Table:
    """`{"records": [{"example_id": …, "label": …}, …]}` or columns `{"example_id": […], "label": […]}` as a table.

    Raises InvalidFile for what is not such JSON, InvalidRows for rows of the wrong shape.
    """
    import pyarrow as pa

    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidFile("The body is not valid JSON.") from None
    if not isinstance(data, dict):
        raise InvalidFile(
            f'The JSON body must be {{"records": [...]}} or have one list per field: {", ".join(fields)}.'
        )
    if "records" in data:
        records = data["records"]
        if set(data) != {"records"} or not isinstance(records, list):
            raise InvalidFile('"records" must be a list, and the only member of the body.')
        wanted = set(fields)
        bad = [i for i, r in enumerate(records) if not isinstance(r, dict) or set(r) != wanted]
        if bad:
            rule = f"a record must have exactly the members {', '.join(fields)}"
            raise InvalidRows([RowProblem(i, "records", rule) for i in bad], len(bad))
        columns: dict[str, list[Any]] = {name: [r[name] for r in records] for name in fields}
    else:
        if set(data) != set(fields) or not all(isinstance(data[name], list) for name in fields):
            raise InvalidFile(
                f'The JSON body must be {{"records": [...]}} or have one list per field: {", ".join(fields)}.'
            )
        columns = data
        if len({len(columns[name]) for name in fields}) > 1:
            raise InvalidFile(f"The lists {', '.join(fields)} must be of the same length.")
    arrays = {ID: _id_array(columns[ID])}
    if LABEL in fields:
        arrays[LABEL] = _number_array(columns[LABEL])
    return pa.table(arrays)


def _id_array(values: list[Any]) -> pa.Array:
    import pyarrow as pa

    bad = [i for i, v in enumerate(values) if not isinstance(v, str) and type(v) is not int]
    if bad:
        raise InvalidRows([RowProblem(i, ID, "must be text or a whole number") for i in bad], len(bad))
    try:
        return pa.array([v if isinstance(v, str) else str(v) for v in values], pa.string())
    except (UnicodeEncodeError, pa.ArrowException):
        bad = [i for i, v in enumerate(values) if isinstance(v, str) and not _encodable(v)]
        raise InvalidRows([RowProblem(i, ID, "must be valid Unicode text") for i in bad], len(bad)) from None


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _number_array(values: list[Any]) -> pa.Array:
    import pyarrow as pa

    bad = [i for i, v in enumerate(values) if type(v) is not float and type(v) is not int]
    if bad:
        raise InvalidRows([RowProblem(i, LABEL, NUMBER) for i in bad], len(bad))
    try:
        return pa.array(np.array(values, dtype=np.float64))
    except OverflowError:
        bad = [i for i, v in enumerate(values) if type(v) is int and abs(v) > 10**300]
        raise InvalidRows([RowProblem(i, LABEL, FINITE) for i in bad], len(bad)) from None


def parse_file(body: bytes, columns: tuple[str, ...], text_columns: tuple[str, ...]) -> pa.Table:
    """A Parquet or CSV body."""
    most = DECODED_FLOOR + DECODED_RATIO * len(body)
    return read_table(
        io.BytesIO(body), text_columns=text_columns, columns=columns, names_are_public=False, most_bytes=most
    )


def ids_of(table: pa.Table, field: str = ID) -> pa.Array:
    """Canonical ids of a non-empty table, each once. Raises InvalidRows, InvalidFile."""
    if table.num_rows == 0:
        raise InvalidFile("There is no row in the upload; send at least one.")
    ids = canonical_ids(table[field], field)
    refuse_duplicates(ids, field)
    return ids


def floats_of(column: Any, field: str = LABEL) -> npt.NDArray[np.float64]:
    """Finite float64[n] from a numeric or (CSV) text column. Raises InvalidRows, InvalidTable."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_dictionary(kind):
        column = pc.cast(column, kind.value_type)
        kind = kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        values, bad = _from_text(column)
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        bad = pc.is_null(column).to_numpy().astype(bool)
        values = pc.fill_null(pc.cast(column, pa.float64(), safe=False), float("nan")).to_numpy()
    elif pa.types.is_null(kind):
        values, bad = np.full(len(column), np.nan), np.ones(len(column), dtype=bool)
    else:
        raise InvalidTable(f"The label column '{field}' must hold numbers; it holds {kind}.")
    if bad.any():
        rows = np.flatnonzero(bad)
        raise InvalidRows([RowProblem(int(i), field, NUMBER) for i in rows[: InvalidRows.shown]], len(rows))
    rows = np.flatnonzero(~np.isfinite(values))
    if rows.size:
        raise InvalidRows([RowProblem(int(i), field, FINITE) for i in rows[: InvalidRows.shown]], len(rows))
    return np.ascontiguousarray(values, dtype=np.float64)


def _from_text(column: Any) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(pc.cast(column, pa.large_string()))
    try:
        values = pc.cast(text, pa.float64())
        return pc.fill_null(values, float("nan")).to_numpy(), pc.is_null(values).to_numpy().astype(bool)
    except pa.ArrowInvalid:
        parsed = [_float_or_none(t) for t in text.to_pylist()]
        bad = np.array([p is None for p in parsed])
        return np.array([np.nan if p is None else p for p in parsed]), bad


def _float_or_none(text: str | None) -> float | None:
    try:
        return None if text is None or "_" in text else float(text)
    except ValueError:
        return None


def positions(labels: npt.NDArray[np.float64], domain: Domain, rule: str, field: str = LABEL) -> npt.NDArray[np.int64]:
    """Domain positions int64[n]: rounded down to the step, outside values clipped or refused (public rule)."""
    index, outside = domain.index(labels)
    if rule == "refuse" and outside.any():
        rows = np.flatnonzero(outside)
        raise InvalidRows([RowProblem(int(i), field, OUTSIDE) for i in rows[: InvalidRows.shown]], len(rows))
    return index
