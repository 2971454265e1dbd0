"""`privatize` reads its file in chunks, and a refused run leaves no population, batch, charge or file behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from label_dp.ahead import ahead
from label_dp.domain import Domain
from label_dp.errors import InvalidFile, InvalidTable, LabelDPError
from labels_party.labels import label_file, upload_runs
from labels_party.labels.label_file import LabelFile
from tests.support.asking import population as parse_population
from tests.support.asking import privatize
from tests.support.asking import request as parse_request
from tests.support.labels import LabelsParty, label_table

pytestmark = pytest.mark.extended


def run(party: LabelsParty, labels: Path, examples: Path | None = None, **rules: Any) -> Any:
    population = parse_population("shop", "label", Domain.parse("0:10"), "2", **rules)
    request = parse_request(party.services, population, epsilon="1", prior="uniform")
    return privatize(party.services, labels, population, request, party.home.parent / "m.parquet", examples)


def nothing_left(party: LabelsParty) -> None:
    s = party.services
    assert s.database.read("p", s.populations.list) == []
    assert s.database.read("e", lambda c: s.audit.events(c)) == []
    for folder in (s.home.labels, s.home.work, s.home.spill):
        assert not [p for p in folder.rglob("*") if p.is_file()]
    assert not list(party.home.parent.glob("m.*"))


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_file, "CHUNK_ROWS", 50)
    monkeypatch.setattr(label_file, "CSV_BLOCK", 512)
    monkeypatch.setattr(upload_runs, "BUFFER", 100)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("rows", [1, 99, 100, 200, 333])
@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_every_row_arrives_whatever_the_chunks(party: LabelsParty, tmp_path: Path, rows: int, kind: str) -> None:
    table = label_table(rows).take(np.random.default_rng(1).permutation(rows))
    path = tmp_path / f"labels.{kind}"
    if kind == "csv":
        body = "\n".join(f'note,"{i}",{v}' for i, v in zip(*(c.to_pylist() for c in table.columns), strict=True))
        path.write_text(f"other,example_id,label\n{body}\n")
    else:
        pq.write_table(table.append_column("other", pa.array(["x"] * rows)), path, row_group_size=70)
    assert run(party, path)["examples"] == rows
    message = pq.read_table(tmp_path / "m.parquet")
    assert message["example_id"].to_pylist() == sorted(table["example_id"].to_pylist())


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("late", ["same", "grown", "much grown"])
def test_ids_sorted_as_numbers_arrive_like_any(
    party: LabelsParty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    """Also where later ids are longer than the first ones, and every block is a run on the disk."""
    monkeypatch.setattr("labels_party.labels.by_id.sort.BLOCK_ROWS", 64)
    monkeypatch.setattr(party.services.sealer.sort, "memory_mb", 0)
    end = {"same": "", "grown": "é", "much grown": "x" * 300}[late]
    ids = [f"i{i}" + end * (i > 200) for i in range(300)]
    path = tmp_path / "labels.parquet"
    pq.write_table(pa.table({"example_id": ids, "label": [1.0] * 300}), path)
    assert run(party, path)["examples"] == 300
    message = pq.read_table(tmp_path / "m.parquet")
    assert message["example_id"].to_pylist() == sorted(ids, key=lambda i: i.encode())
    assert len(list(party.services.home.labels.rglob("*.parquet"))) == 1
    assert not [p for p in party.services.home.spill.rglob("*") if p.is_file()]


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("fault", ["duplicate", "far duplicate", "not a number", "outside", "null id"])
def test_a_fault_anywhere_leaves_nothing_and_names_its_row(party: LabelsParty, tmp_path: Path, fault: str) -> None:
    ids: list[str | None] = [f"i{i:04d}" for i in range(300)]
    labels = [1.0] * 300
    row = 260
    if fault.endswith("duplicate"):
        ids[row] = ids[255 if fault == "duplicate" else 3]
    elif fault == "null id":
        ids[row] = None
    else:
        labels[row] = float("nan") if fault == "not a number" else 11.0
    pq.write_table(pa.table({"example_id": ids, "label": labels}), tmp_path / "l.parquet")
    with pytest.raises(LabelDPError) as refused:
        run(party, tmp_path / "l.parquet", out_of_domain="refuse")
    assert [p["row"] for p in refused.value.extras()["rows"]] == [row + 1]  # type: ignore[attr-defined]  # extras are objects of any kind
    nothing_left(party)


def test_a_missing_label_declares_no_population(party: LabelsParty, tmp_path: Path) -> None:
    pq.write_table(label_table(20), tmp_path / "l.parquet")
    pq.write_table(label_table(21).select(["example_id"]), tmp_path / "e.parquet")
    with pytest.raises(LabelDPError, match="no label"):
        run(party, tmp_path / "l.parquet", tmp_path / "e.parquet")
    nothing_left(party)
    # other rules may be declared now
    assert run(party, tmp_path / "l.parquet", tmp_path / "e.parquet", missing_label="3")["examples"] == 21


def test_examples_of_another_population_declare_none(party: LabelsParty, tmp_path: Path) -> None:
    pq.write_table(label_table(20), tmp_path / "l.parquet")
    party.sealed_batch(label_table(30), "first", label="label")
    with pytest.raises(LabelDPError, match="in batch"):
        run(party, tmp_path / "l.parquet")
    party.sealed_batch(label_table(20, prefix="other"), "first", label="label")
    pq.write_table(label_table(20, prefix="other"), tmp_path / "same.parquet")
    with pytest.raises(LabelDPError, match="belongs to population 'first'"):
        run(party, tmp_path / "same.parquet")
    s = party.services
    assert [p.name for p in s.database.read("p", s.populations.list)] == ["first"]


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_file_that_breaks_off_says_so(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"l.{kind}"
    if kind == "parquet":
        pq.write_table(label_table(5000), path)
        path.write_bytes(path.read_bytes()[:-40])
    else:
        path.write_text("example_id,label\na,1\nb,2,3\n")
    with pytest.raises(InvalidFile) as refused:
        list(LabelFile.open(path, ["example_id", "label"]).chunks())
    assert "click" not in refused.value.detail


def test_text_that_is_not_unicode_is_refused(tmp_path: Path) -> None:
    ids = pa.array([b"ok", b"\xff\xfe"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"example_id": ids, "label": [1.0, 2.0]}), tmp_path / "l.parquet")
    (tmp_path / "l.csv").write_bytes(b"example_id,label\nok,1\n\xff\xfe,2\n")
    for name in ("l.parquet", "l.csv"):
        with pytest.raises(InvalidFile):
            list(LabelFile.open(tmp_path / name, ["example_id", "label"]).chunks())


def test_ids_that_look_like_missing_values_stay_text(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("\ufeffexample_id,label,unit\nNA,1,\nnull,2,x\n007,3,y\n", encoding="utf-8")
    table = pa.concat_tables(LabelFile.open(tmp_path / "l.csv", ["label", "example_id"]).chunks())
    assert table.to_pydict() == {"label": ["1", "2", "3"], "example_id": ["NA", "null", "007"]}


def test_a_missing_column_is_named_but_the_others_are_not(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("secret-1,7\nsecret-2,8\n")
    with pytest.raises(InvalidTable) as refused:
        LabelFile.open(tmp_path / "l.csv", ["example_id"])
    assert "example_id" in refused.value.detail
    assert "secret" not in refused.value.detail
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(InvalidFile, match="is empty"):
        LabelFile.open(tmp_path / "empty.csv", ["example_id"])
    with pytest.raises(InvalidFile, match="cannot be read"):
        LabelFile.open(tmp_path / "none.csv", ["example_id"])


def test_reading_ahead_keeps_order_raises_and_cleans_up() -> None:
    closed: list[str] = []

    def items(last: int) -> Iterator[int]:
        try:
            yield from range(last)
            raise KeyError("end")
        finally:
            closed.append(threading.current_thread().name)

    found: list[int] = []
    with pytest.raises(KeyError):
        found.extend(ahead(items(50)))
    reading = ahead(items(1000))
    assert next(reading) == 0
    reading.close()  # type: ignore[attr-defined]  # it is a generator
    assert closed == ["read-ahead"] * 2
    assert not [t for t in threading.enumerate() if t.name == "read-ahead"]
    assert list(ahead(range(300))) == list(range(300))
