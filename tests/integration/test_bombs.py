"""Uploads that claim, or would become, far more than was sent: refused while they are numbers."""

from __future__ import annotations

import struct
import time

import numpy as np
import pyarrow as pa
import pytest

from tests.support.desk import Desk
from tests.support.upload_formats import ARROW, PARQUET, table_body

pytestmark = pytest.mark.extended

SECONDS = 10.0  # of the processor; each takes a few hundredths
ROWS = 20_000
REFUSALS = ((413, "too-large"), (422, "invalid-rows"), (422, "invalid-file"))


def plain(rows: int = ROWS) -> pa.Table:
    return pa.table({"example_id": [f"bomb{i:012d}" for i in range(rows)], "label": np.ones(rows)})


def lying(codec: str) -> bytes:
    """A stream whose compressed label buffer says that it becomes a terabyte."""
    body = table_body("arrow", plain(), compression=codec)
    true = struct.pack("<q", 8 * ROWS)
    assert true in body
    return body.replace(true, struct.pack("<q", 1 << 40))


def inflating(codec: str) -> bytes:
    """A few kilobytes that become one id of 100 MB."""
    table = pa.table({"example_id": ["z" * 100_000_000], "label": [1.0]})
    body = table_body("arrow", table, compression=codec)
    assert len(body) < 1 << 20
    return body


def repeating(form: str) -> bytes:
    """One id of a megabyte in a dictionary, named by every row: 20 GB as text."""
    ids = pa.DictionaryArray.from_arrays(pa.array(np.zeros(ROWS, np.int32)), pa.array(["y" * (1 << 20)]))
    return table_body(form, pa.table({"example_id": ids, "label": np.ones(ROWS)}))


def many_rows() -> bytes:
    """More rows than a record batch may have, of nothing at all: a null column takes no bytes."""
    schema = pa.schema([("example_id", pa.int8()), ("label", pa.null())])
    rows = (1 << 22) + 1
    table = pa.table({"example_id": pa.array(np.zeros(rows, np.int8)), "label": pa.nulls(rows)}, schema)
    return table_body("arrow", table, compression="zstd")


BOMBS = [
    ("a lying length, lz4", lying, "lz4", ARROW),
    ("a lying length, zstd", lying, "zstd", ARROW),
    ("one long id, lz4", inflating, "lz4", ARROW),
    ("one long id, zstd", inflating, "zstd", ARROW),
    ("a dictionary in Arrow", repeating, "arrow", ARROW),
    ("a dictionary in Parquet", repeating, "parquet", PARQUET),
    ("rows of nothing", lambda _: many_rows(), "", ARROW),
]


@pytest.mark.parametrize(("make", "how", "media"), [b[1:] for b in BOMBS], ids=[b[0] for b in BOMBS])
def test_a_bomb_is_refused_quickly_and_leaves_nothing(make: object, how: str, media: str, desk: Desk) -> None:
    body = make(how)  # type: ignore[operator]  # one of the functions above
    before, held = desk.state(), pa.total_allocated_bytes()
    started = time.process_time()
    answer = desk.labels(body, media)
    assert time.process_time() - started < SECONDS
    assert (answer.status_code, answer.json()["code"]) in (
        (413, "too-large"),
        (422, "invalid-rows"),
        (422, "invalid-file"),
    )
    assert "yyyy" not in answer.text + desk.log.text
    assert desk.state() == before
    assert pa.total_allocated_bytes() - held < 1 << 26
    assert desk.labels(table_body("arrow", plain(10)), ARROW).status_code == 200
