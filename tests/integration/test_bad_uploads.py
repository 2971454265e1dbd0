"""Uploads of the wrong shape are refused whole."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.support.desk import CSV, JSON, PARQUET, Desk, parquet

GOOD = parquet(example_id=["a", "b"], label=[1.0, 73.194])
SHAPES: list[tuple[str, bytes, str, str]] = [
    ("empty json", b"", JSON, "invalid-file"),
    ("half json", b'{"records":[', JSON, "invalid-file"),
    ("a list", b'[{"example_id":"a","label":7319462851}]', JSON, "invalid-file"),
    ("no rows", b'{"records":[]}', JSON, "invalid-file"),
    ("no rows in columns", b'{"example_id":[],"label":[]}', JSON, "invalid-file"),
    ("lists of unequal length", b'{"example_id":["a"],"label":[1,7319462851]}', JSON, "invalid-file"),
    ("another member", b'{"example_id":["a"],"label":[1],"secret":[7319462851]}', JSON, "invalid-file"),
    ("records and more", b'{"records":[],"label":[7319462851]}', JSON, "invalid-file"),
    ("a record with more", b'{"records":[{"example_id":"a","label":1,"x":7319462851}]}', JSON, "invalid-rows"),
    ("a record with less", b'{"records":[{"label":7319462851}]}', JSON, "invalid-rows"),
    ("a record that is none", b'{"records":[7319462851]}', JSON, "invalid-rows"),
    ("not utf-8", b'{"example_id":["\xff"],"label":[7319462851]}', JSON, "invalid-file"),
    ("too deep", b'{"records":' + b"[" * 100_000, JSON, "invalid-file"),
    ("empty parquet", b"", PARQUET, "invalid-file"),
    (
        "parquet without rows",
        parquet(example_id=pa.array([], pa.string()), label=pa.array([], pa.float64())),
        PARQUET,
        "invalid-file",
    ),
    ("half parquet", GOOD[: len(GOOD) // 2], PARQUET, "invalid-file"),
    ("parquet without its end", GOOD[:-1], PARQUET, "invalid-file"),
    ("parquet magic only", b"PAR1", PARQUET, "invalid-file"),
    ("parquet with another column", parquet(example_id=["a"], labels=[7319462851]), PARQUET, "invalid-table"),
    ("parquet with float ids", parquet(example_id=[1.5], label=[73]), PARQUET, "invalid-table"),
    ("empty csv", b"", CSV, "invalid-file"),
    ("header only", b"example_id,label\n", CSV, "invalid-file"),
    ("csv with another column", b"example_id,amount\na,7319462851\n", CSV, "invalid-table"),
    ("csv without a header", b"a,7319462851\nb,5\n", CSV, "invalid-table"),
    ("ragged csv", b"example_id,label\na,1,7319462851\n", CSV, "invalid-file"),
    ("csv whose header ends otherwise", b"example_id,label\ra,7319462851\nb,2\n", CSV, "invalid-table"),
    ("csv with a column twice", b"example_id,label,label\na,1,7319462851\n", CSV, "invalid-table"),
    ("utf-16 csv", "example_id,label\na,7319462851\n".encode("utf-16"), CSV, "invalid-file"),
    ("latin-1 csv", b"example_id,label\n\xe9,7319462851\n", CSV, "invalid-file"),
]


@pytest.mark.parametrize(("content", "media", "code"), [s[1:] for s in SHAPES], ids=[s[0] for s in SHAPES])
def test_uploads_of_the_wrong_shape_are_refused(content: bytes, media: str, code: str, desk: Desk) -> None:
    before = desk.state()
    answer = desk.labels(content, media)
    # the header of a CSV is no label: without one, the first row is taken for it and shown
    desk.refused(answer, code, *([] if content.startswith(b"a,7319462851") else ["7319462851"]), "73.194")
    assert desk.state() == before


def test_a_byte_order_mark_is_no_part_of_a_column_name(desk: Desk) -> None:
    assert desk.labels(b"\xef\xbb\xbfexample_id,label\na,7\n", CSV).status_code == 200
    assert desk.labels(b'\xef\xbb\xbf{"example_id":["b"],"label":[7]}', JSON).status_code == 200
