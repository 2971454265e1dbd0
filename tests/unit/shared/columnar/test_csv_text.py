"""What is wrong with a CSV file is said by line and rule, and nothing of what it says is quoted."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pytest

from label_dp.columnar.csv_text import with_lines
from label_dp.columnar.tables import canonical_ids, read_table
from label_dp.errors import InvalidFile, InvalidInput, InvalidRows, InvalidTable, RowProblem

SECRET = "765.43"
GOOD = b"id,label\n" + b"".join(b"c%d,765.43\n" % i for i in range(15))

CASES: dict[str, tuple[bytes, type[InvalidInput], str]] = {
    "a value too many": (GOOD + b"x,765.43,1\n", InvalidFile, "Line 17 of 'f.csv' has 3 values, but its header"),
    "a value too few": (GOOD + b"x\n", InvalidFile, "Line 17 of 'f.csv' has 1 value, but its header names 2 columns."),
    "ragged after a quoted line break": (
        b'id,label\n"a\nb",765.43\nx,765.43,9\n', InvalidFile, "Line 4 of 'f.csv' has 3 values"
    ),
    "an open quote": (GOOD + b'"x,765.43\ny,765.43\n', InvalidFile, "line 17 of 'f.csv' has a quote that is"),
    "latin-1": (GOOD + "Zoë,765.43\n".encode("latin-1"), InvalidFile, "Line 17 of 'f.csv' is not UTF-8"),
    "latin-1 header": ("id,lábel\na,765.43\n".encode("latin-1"), InvalidFile, "Line 1 of 'f.csv' is not UTF-8"),
    "utf-16": (GOOD.decode().encode("utf-16"), InvalidFile, "is UTF-16 text; save it as UTF-8"),
    "utf-16 without a mark": (GOOD.decode().encode("utf-16-le"), InvalidFile, "is no text"),
    "semicolons": (GOOD.replace(b",", b";"), InvalidTable, "by semicolons; separate them by commas"),
    "semicolons and decimal commas": (b"id;label\na;765,43\n", InvalidFile, "by semicolons; separate them by commas"),
    "tabs": (GOOD.replace(b",", b"\t"), InvalidTable, "by tabs"),
    "bars": (GOOD.replace(b",", b"|"), InvalidTable, "by vertical bars"),
    "excel": (b"PK\x03\x04" + b"\0" * 40, InvalidFile, "Excel workbook"),
    "gzip": (b"\x1f\x8b\x08" + b"\0" * 40, InvalidFile, "compressed by gzip"),
    "binary": (b"\x00\x01\x02\x03", InvalidFile, "is no text"),
    "no header": (b"c1,765.43\nc2,765.43\n", InvalidTable, "It has 2 columns; a CSV file's first line must name them"),
    "a column twice": (b"id,label,label\na,1,765.43\n", InvalidTable, "more than one column 'label'"),
    "an empty file": (b"", InvalidFile, "is empty"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("on_disk", [True, False])
def test_bad_files_are_described_by_line_and_rule(case: str, on_disk: bool, tmp_path: Path) -> None:
    data, kind, words = CASES[case]
    path = tmp_path / "f.csv"
    path.write_bytes(data)
    columns = ["id", "label"]
    with pytest.raises(kind) as refused:
        read_table(
            path if on_disk else io.BytesIO(data),
            text_columns=columns,
            columns=columns,
            name="f.csv",
            names_are_public=False,
        )
    assert words in refused.value.detail
    assert SECRET not in refused.value.detail
    assert refused.value.exit_code == 2


def test_a_byte_order_mark_and_windows_line_ends_are_fine() -> None:
    data = b"\xef\xbb\xbfid,label\r\na,1\r\nb,2\r\n"
    assert read_table(io.BytesIO(data), text_columns=["id"], columns=["id", "label"]).to_pydict() == {
        "id": ["a", "b"],
        "label": [1, 2],
    }


def test_a_column_that_is_no_text_is_refused_though_nobody_named_it() -> None:
    data = b"id,note\na,fine\nb,\xe9\n"
    with pytest.raises(InvalidFile, match="Line 3 of 'x' is not UTF-8"):
        read_table(io.BytesIO(data), name="x")


def test_a_column_may_be_called_with_a_semicolon() -> None:
    assert read_table(io.BytesIO(b"a;b\n1\n"), columns=["a;b"]).num_rows == 1


def test_rows_of_a_file_are_named_by_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text('id,label\n"a\nb",1\n\n,2\n"c\n\nd",3\n,4\n')
    table = read_table(path, text_columns=["id"])
    with pytest.raises(InvalidRows) as refused:
        canonical_ids(table["id"], "id")
    located = with_lines(refused.value, path)
    assert [(p.row, p.line) for p in located.problems] == [(1, 5), (3, 9)]
    assert "Row 2 (counting from 1), line 5, field 'id'" in located.detail
    assert located.extras()["rows"][0] == {  # type: ignore[index]  # extras are objects of any kind
        "row": 2, "line": 5, "field": "id", "rule": refused.value.problems[0].rule,
    }  # fmt: skip


def test_rows_of_other_files_stay_as_they_are(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    error = InvalidRows([RowProblem(1, "id", "must be text")])
    pq.write_table(pa.table({"id": ["a", ""]}), tmp_path / "x.parquet")
    assert with_lines(error, tmp_path / "x.parquet").problems[0].line is None
    assert with_lines(error, tmp_path / "absent").problems[0].line is None
