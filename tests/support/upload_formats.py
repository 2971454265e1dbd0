"""The wire forms of one upload of ids and labels, given as tokens (text formats) or as Arrow columns."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from labels_party.labels.formats.source import BLOCK

JSON = "application/json"
NDJSON = "application/x-ndjson"
CSV = "text/csv"
ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"

TEXT_FORMATS = {"json-records": JSON, "json-columns": JSON, "ndjson": NDJSON, "csv": CSV}
COLUMN_FORMATS = {"arrow": ARROW, "parquet": PARQUET}
MEDIA = TEXT_FORMATS | COLUMN_FORMATS


class BytesSource:
    """An upload that is in memory already, as the formats read it."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def read(self) -> bytes:
        return self._file.read(BLOCK)


def token(form: str, value: str | float | int) -> str:
    """A good id or label as the format spells it."""
    if form == "csv":
        return str(value)
    return encode_basestring_ascii(value) if isinstance(value, str) else _number(value)


@lru_cache(maxsize=1000, typed=True)
def _number(value: float | int) -> str:
    return json.dumps(value)


def text_body(form: str, ids: Sequence[str], labels: Sequence[str]) -> bytes:
    """An upload in a text format from tokens, which go in unchecked. `labels` may be empty: a list of ids."""
    if form == "json-columns":
        columns = [f'"example_id":[{",".join(ids)}]'] + ([f'"label":[{",".join(labels)}]'] if labels else [])
        return f"{{{','.join(columns)}}}".encode("utf-8", "surrogatepass")
    if form == "csv":
        head, rows = "example_id,label\n", [f"{i},{v}\n" for i, v in zip(ids, labels, strict=True)]
        return (head + "".join(rows)).encode("utf-8", "surrogatepass")
    return records_body(form, [f'{{"example_id":{i},"label":{v}}}' for i, v in zip(ids, labels, strict=True)])


def records_body(form: str, records: Sequence[str]) -> bytes:
    """JSON or NDJSON from the texts of whole records."""
    text = "\n".join(records) + "\n" if form == "ndjson" else f'{{"records":[{",".join(records)}]}}'
    return text.encode("utf-8", "surrogatepass")


def table_body(form: str, table: pa.Table, **options: Any) -> bytes:
    """An Arrow stream or a Parquet file of `table`."""
    sink = io.BytesIO()
    if form == "arrow":
        with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
            writer.write_table(table)
    else:
        pq.write_table(table, sink, **options)
    return sink.getvalue()


def parquet(table: pa.Table) -> bytes:
    return table_body("parquet", table)


def good_body(form: str, ids: Sequence[str], labels: Sequence[float]) -> bytes:
    """An upload without fault."""
    if form in COLUMN_FORMATS:
        return table_body(form, pa.table({"example_id": list(ids), "label": [float(v) for v in labels]}))
    return text_body(form, [token(form, i) for i in ids], [token(form, v) for v in labels])
