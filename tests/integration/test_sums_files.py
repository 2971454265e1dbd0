"""Sums by group as files: both parties' commands write each grouping whole or not at all, and say what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest

from label_dp.cli.answers import write_groupings
from label_dp.companions.kinds.sum import open_sums
from label_dp.documents.signing import ANSWER_TYPE
from label_dp.errors import InvalidFile, InvalidInput
from label_dp.numbers import within
from tests.support.features_cli import Shell
from tests.support.golden_documents import documents
from tests.support.labels_cli import Run, refused
from tests.support.messages import Sender

FIGURES = {"n": 3, "sum": 2.5, "mean": 2.5 / 3, "sum_from": 0.0, "sum_to": 4.0, "says_nothing": False}


def grouping(*by: str) -> dict[str, Any]:
    values: list[str | None] = ['a,"b"\n', "", None]
    return {"by": list(by), "rows": [dict.fromkeys(by, value) | FIGURES for value in values]}


@pytest.fixture
def envelope(tmp_path: Path) -> tuple[Path, Path, list[dict[str, Any]]]:
    """A signed answer of two groupings, the key that signed it, and its tables."""
    sender = Sender()
    signed = sender.key.sign(ANSWER_TYPE, documents(sender.key.public.id)["sums: of both"])
    (tmp_path / "sums.json").write_bytes(signed)
    tables = open_sums(signed, sender.key.public, "features-party").tables()
    return tmp_path / "sums.json", sender.public_key(tmp_path), tables


def same(folder: Path, tables: list[dict[str, Any]], names: list[str]) -> None:
    for name, table in zip(names, tables, strict=True):
        (file,) = folder.glob(f"{name}.*")
        read = pq.read_table(file) if file.suffix == ".parquet" else arrow_csv.read_csv(file)
        assert read.column_names == [*table["by"], *FIGURES]
        assert read.to_pylist() == table["rows"] or file.suffix == ".csv"
        assert read["sum"].to_pylist() == [row["sum"] for row in table["rows"]]
        assert [value or None for value in read[0].to_pylist()] == [row[table["by"][0]] for row in table["rows"]]


def test_each_grouping_becomes_a_file_with_every_value(tmp_path: Path) -> None:
    tables = [grouping("a b"), grouping("a_b"), grouping("../x", "day")]
    files = write_groupings([{"tables": tables}], tmp_path / "of both", tmp_path / "of both")
    names = ["a_b", "a_b-2", "_x-day"]
    assert [Path(file).name for file in files] == [f"{name}.{end}" for end in ("csv", "parquet") for name in names]
    for name, table in zip(names, tables, strict=True):
        assert pq.read_table(tmp_path / "of both" / f"{name}.parquet").to_pylist() == table["rows"]
    text = (tmp_path / "of both" / "a_b.csv").read_text()
    assert text.splitlines()[0] == '"a b","n","sum","mean","sum_from","sum_to","says_nothing"'
    assert text.endswith('"",3,2.5,0.8333333333333334,0,4,false\n,3,2.5,0.8333333333333334,0,4,false\n')


def test_nothing_is_written_where_a_file_is_in_the_way(tmp_path: Path) -> None:
    results = [{"tables": [grouping("a"), grouping("b")]}]
    (tmp_path / "b.csv").write_text("mine")
    with pytest.raises(InvalidInput, match="exists already"):
        write_groupings(results, tmp_path, tmp_path / "fresh")
    assert [path.name for path in tmp_path.rglob("*")] == ["b.csv"]
    assert (tmp_path / "b.csv").read_text() == "mine"
    assert len(write_groupings(results, tmp_path, None, force=True)) == 2
    assert (tmp_path / "b.csv").read_text() != "mine"


@pytest.mark.parametrize("results", [[], [{}], [{"tables": []}], [{"tables": [grouping("a")]}] * 2])
def test_what_has_no_groups_is_refused(results: list[Any], tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="one answer with sums by group"):
        write_groupings(results, tmp_path / "x", None)
    assert list(tmp_path.iterdir()) == []
    assert write_groupings(results, None, None) == []


def test_a_folder_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    results = [{"tables": [grouping("a")]}]
    with pytest.raises(InvalidInput, match="name it without ending"):
        write_groupings(results, tmp_path / "sums.csv", None)
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidFile, match="cannot be made"):
        write_groupings(results, None, tmp_path / "file")


def test_the_labels_party_writes_what_it_inspects(
    run: Run, tmp_path: Path, envelope: tuple[Path, Path, list[dict[str, Any]]]
) -> None:
    file, key, tables = envelope
    asked = ("inspect", str(file), "--labels-key", str(key), "--csv", str(tmp_path / "groups"))
    result = run(*asked)
    assert result.code == 0, result.err
    assert "written: " in " ".join(result.out.split())
    same(tmp_path / "groups", tables, ["device", "country-device"])
    refused(run(*asked), 2, "device.csv' exists already", "--force")
    assert len(run(*asked, "--force", "--json").json["files"]) == 2


def test_the_features_party_writes_what_it_accepted(
    tmp_path: Path, envelope: tuple[Path, Path, list[dict[str, Any]]]
) -> None:
    file, key, tables = envelope
    shell = Shell(tmp_path)
    shell.run("answers", "accept", file, "--labels-key", key)
    shown = shell.json("answers", "show", "ans_1", "--parquet", tmp_path / "groups")
    assert len(shown["files"]) == 2
    same(tmp_path / "groups", tables, ["device", "country-device"])
    assert "name it without ending" in shell.refused("answers", "show", "ans_1", "--csv", "sums.csv", code=2)


@pytest.mark.parametrize(
    ("value", "width", "rounded"),
    [
        (483.6412, 540.0, 483.6),
        (1.2e-7, 70.0, 0.0),
        (-1e-9, 70.0, 0.0),
        (1234567.8, 9e5, 1234600.0),
        (0.1234567, 0, 0.1234567),
    ],
)
def test_an_estimate_has_the_digits_of_its_interval(value: float, width: float, rounded: float) -> None:
    assert str(within(value, width)) == str(rounded)
