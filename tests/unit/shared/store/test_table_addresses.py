"""Addresses of tables, and tables of several files here: their rows, order and types, and what is refused where."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from label_dp.columnar.parts import TableParts, read_rows
from label_dp.errors import InvalidFile, InvalidInput, InvalidRows, InvalidTable, LabelDPError, RowProblem
from label_dp.store.table_addresses import TableAddress, store_address
from label_dp.store.table_files import table_at

ROWS = pa.table({"id": ["a", "b"], "v": [1.0, 2.0]})


def parts(place: Path | str) -> TableParts:
    found = table_at(place)
    assert isinstance(found, TableParts)
    return found


def rows(place: Path | str) -> list[dict[str, object]]:
    return list(pa.concat_tables(parts(place).tables()).to_pylist())


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("labels.parquet", TableAddress("file", "labels.parquet")),
        ("in/*.csv", TableAddress("file", "in/*.csv")),
        ("file:///lake/x%20y", TableAddress("file", "/lake/x y")),
        ("s3://b/k/x.parquet?region=eu", TableAddress("store", "s3://b/k/x.parquet?region=eu")),
        (Path("s3://b/k"), TableAddress("store", "s3://b/k")),
        ("delta:lake/sales", TableAddress("delta", "lake/sales")),
        ("delta:lake/sales@12", TableAddress("delta", "lake/sales", 12)),
        ("delta:lake/sales@v12", TableAddress("delta", "lake/sales", 12)),
        ("delta:lake/sales@3..12", TableAddress("delta", "lake/sales", 12, 3)),
        ("delta:lake/sales@3..", TableAddress("delta", "lake/sales", None, 3)),
        ("delta:lake/sales@last..", TableAddress("delta", "lake/sales", None, "last")),
        ("delta:abfss://c@a.dfs.core.windows.net/t", TableAddress("delta", "abfss://c@a.dfs.core.windows.net/t")),
        ("delta:abfss://c@a.dfs.core.windows.net/t@3", TableAddress("delta", "abfss://c@a.dfs.core.windows.net/t", 3)),
        ("iceberg:prod/shop.eu.sales", TableAddress("iceberg", "prod/shop.eu.sales")),
        (
            "iceberg:prod/shop.sales@8593836166362834198",
            TableAddress("iceberg", "prod/shop.sales", 8593836166362834198),
        ),
    ],
)
def test_an_address_is_parsed_once(text: str | Path, address: TableAddress) -> None:
    assert TableAddress.parse(text) == address


@pytest.mark.parametrize(
    "text",
    ["http://host/x.parquet", "hdfs://host/x", "delta:http://host/t", "iceberg:sales", "iceberg:c/sales", "delta:@3"],
)
def test_other_addresses_are_refused_with_the_forms_there_are(text: str) -> None:
    with pytest.raises(InvalidInput, match="iceberg:CATALOG/NAMESPACE"):
        TableAddress.parse(text)


def test_an_address_is_shown_without_what_may_be_secret() -> None:
    url = "s3://b/k?endpoint_override=http://h&AWS_SECRET_ACCESS_KEY=hidden"
    for text in (url, f"delta:{url}"):
        assert "hidden" not in str(TableAddress.parse(text))
    for bad in (url, "s3://key:hidden@b/k", "gs://b/k?token=hidden"):
        with pytest.raises(InvalidInput) as refused:
            store_address(bad)
        assert "hidden" not in refused.value.detail


def test_azure_by_container_or_by_container_and_account() -> None:
    named, plain = store_address("abfss://c@acct.dfs.core.windows.net/a/b"), store_address("abfs://c/a/b")
    assert (named.maker, named.bucket, named.prefix, named.account) == ("az", "c", "a/b", "acct")
    assert (plain.maker, plain.bucket, plain.prefix, plain.account) == ("az", "c", "a/b", None)


def test_a_single_file_stays_a_path(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "a[1].parquet")
    assert table_at(tmp_path / "a[1].parquet") == tmp_path / "a[1].parquet"
    assert table_at("missing.parquet") == Path("missing.parquet")


def test_a_folder_has_its_files_by_name_and_columns_of_its_folders(tmp_path: Path) -> None:
    for day in ("2026-01-02", "2026-01-01"):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(ROWS, tmp_path / f"day={day}" / "p.parquet")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".p.parquet.crc").write_bytes(b"x")
    days = [dt.date(2026, 1, 1)] * 2 + [dt.date(2026, 1, 2)] * 2
    assert [row["day"] for row in rows(tmp_path)] == days
    assert [row["id"] for row in rows(tmp_path)] == ["a", "b", "a", "b"]
    assert rows(tmp_path / "day=*" / "*.parquet") == rows(tmp_path)
    assert len(rows(f"{tmp_path}/**/day=2026-01-02/*")) == 2


def test_csv_files_of_one_folder_have_the_types_of_all_their_cells(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("id,v,w\n01,1,\n02,2,x\n")
    (tmp_path / "2.csv").write_text("w,id,v\ny,03,2.5\n")
    whole = read_rows(parts(tmp_path), text_columns=["id"])
    assert whole.to_pydict() == {"id": ["01", "02", "03"], "v": [1.0, 2.0, 2.5], "w": ["", "x", "y"]}
    assert [t["v"].to_pylist() for t in parts(tmp_path).tables()] == [["1", "2"], ["2.5"]]


def test_a_row_is_named_by_its_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("id\na\nb\n")
    (tmp_path / "2.csv").write_text('id\n"c\nd"\n\ne\n')
    table = parts(tmp_path)
    assert sum(piece.num_rows for piece in table.tables()) == 4
    error = table.placed(InvalidRows([RowProblem(3, "id", "is bad")]))
    assert error.detail.startswith(f"Row 2 (counting from 1), line 5 of '{tmp_path / '2.csv'}', field 'id': is bad.")
    assert error.extras()["rows"] == [
        {"row": 2, "line": 5, "file": str(tmp_path / "2.csv"), "field": "id", "rule": "is bad"}
    ]


def test_files_that_do_not_fit_together_are_named(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "1.parquet")
    for other, word in (
        (pa.table({"id": ["c"]}), "has no column 'v'"),
        (pa.table({"id": ["c"], "v": ["many"]}), "The column 'v' of"),
    ):
        pq.write_table(other, tmp_path / "2.parquet")
        with pytest.raises(InvalidTable, match=word) as refused:
            rows(tmp_path)
        assert "2.parquet" in refused.value.detail
    (tmp_path / "2.parquet").write_bytes((tmp_path / "1.parquet").read_bytes()[:-9])
    with pytest.raises(InvalidFile, match=r"2\.parquet' is a truncated or damaged Parquet file"):
        rows(tmp_path)


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        ("_delta_log/00000000000000000000.json", "is a Delta table: name it delta:"),
        ("metadata/v1.metadata.json", "is an Iceberg"),
    ],
)
def test_the_folder_of_a_lake_table_is_not_read_as_plain_files(tmp_path: Path, file: str, sentence: str) -> None:
    pq.write_table(ROWS, tmp_path / "1.parquet")
    (tmp_path / file).parent.mkdir()
    (tmp_path / file).write_text("{}")
    with pytest.raises(InvalidFile, match=sentence):
        table_at(tmp_path)


def test_nothing_at_an_address(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "*.parquet"):
        with pytest.raises(InvalidFile, match="There is no file at"):
            table_at(place)


def test_last_is_known_to_privatize_alone(tmp_path: Path) -> None:
    with pytest.raises(LabelDPError):
        table_at(f"delta:{tmp_path}@last..")


@pytest.mark.parametrize("first", [pa.float32(), pa.float64()])
def test_floats_of_two_widths_are_no_column(tmp_path: Path, first: pa.DataType) -> None:
    """0.1 of 32 bits is another number in 64: labels and bins would change on the way in."""
    other = pa.float64() if first == pa.float32() else pa.float32()
    for name, kind in (("1", first), ("2", other)):
        pq.write_table(pa.table({"id": [name], "v": pa.array([0.1], kind)}), tmp_path / f"{name}.parquet")
    with pytest.raises(InvalidTable, match=f"The column 'v' of '.*2.parquet' holds {other}"):
        rows(tmp_path)


def test_files_of_two_kinds_are_no_table(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "1.parquet")
    (tmp_path / "2.csv").write_text("id,v\nc,3\n")
    with pytest.raises(InvalidFile, match=r"2\.csv' is no Parquet file, unlike '.*1\.parquet'"):
        rows(tmp_path)
    (tmp_path / "2.csv").rename(tmp_path / "0.csv")
    for read in (rows, lambda place: read_rows(parts(place))):
        with pytest.raises(InvalidFile, match=r"1\.parquet' is Parquet, unlike '.*0\.csv'"):
            read(tmp_path)
