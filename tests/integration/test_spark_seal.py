"""Batches sealed by Spark: the rows and the refusals of any seal, whatever happens to tasks on the way."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from label_dp.documents.bundle import verify
from label_dp.documents.rows import read_message
from label_dp.domain import Domain
from label_dp.errors import AlreadyReleased, LabelDPError
from label_dp.spark.cluster import Cluster
from labels_party.labels.batches import SEALED
from labels_party.labels.seal import SealedLabels
from labels_party.message.engine import LocalEngine
from labels_party.spark import engine as engine_module
from labels_party.spark import files as files_module
from labels_party.spark.engine import SparkEngine
from labels_party.spark.executor.drawing import Drawing
from labels_party.work.store_shelf import SERVED
from tests.support.asking import population as parse_population
from tests.support.asking import privatize
from tests.support.asking import request as parse_request
from tests.support.labels import LabelsParty, label_table
from tests.support.spark_faults import Faulty

pytestmark = pytest.mark.processes
ROWS = 3000
STORE = "object store"


@pytest.fixture
def party(
    request: pytest.FixtureRequest, tmp_path: Path, spark: Cluster, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LabelsParty]:
    """A labels party whose engine is the shared session; objects and files of about a thousand rows."""
    monkeypatch.setattr(files_module, "RANGE_ROWS", 1000)
    monkeypatch.setattr(engine_module, "FEWEST_ROWS", 1)
    objects = request.getfixturevalue("bucket").url if getattr(request, "param", "") == STORE else ""
    with LabelsParty(tmp_path / "home", objects=objects) as made:
        own = made.services
        made.services = dataclasses.replace(own, cluster=spark)
        made.services.message.engine = SparkEngine(spark)
        yield made
        made.services = own


def stored(folder: Path, table: pa.Table, files: int = 1) -> Path:
    """A table as a folder of Parquet files, its rows in no order."""
    folder.mkdir()
    mixed = table.take(np.random.default_rng(3).permutation(len(table)))
    step = -(-len(table) // files)
    for i in range(files):
        pq.write_table(mixed.slice(i * step, step), folder / f"part-{i}.parquet")
    return folder


def run(party: LabelsParty, labels: Path, examples: Path | None = None, **asked: Any) -> Any:
    rules = {name: asked.pop(name) for name in list(asked) if name in ("missing_label", "out_of_domain", "unit_column",
                                                                       "max_examples_per_unit")}  # fmt: skip
    population = parse_population("shop", "label", Domain.parse("0:10"), "9", **rules)
    prefix = asked.pop("id_prefix", None)
    request = parse_request(party.services, population, **({"epsilon": "1", "prior": "uniform"} | asked))
    out = party.home.parent / f"m{len(list(party.home.parent.glob('m*')))}.parquet"
    return privatize(party.services, labels, population, request, out, examples, id_prefix=prefix)


def sealed(party: LabelsParty, batch: str) -> tuple[list[str], list[int], int]:
    """Ids and positions as they are sealed, and in how many objects."""
    s = party.services
    found = s.database.read("look", lambda c: s.batches.segments(c, batch, SEALED))
    ids, index = [], []
    for part, positions in SealedLabels(s.vault, *(f.key for f in found)).chunks():
        ids += part.to_pylist()
        index += positions.tolist()
    return ids, index, len(found)


def nothing_left(party: LabelsParty, batches: int = 0) -> None:
    """But the labels of that many batches, and one population of theirs."""
    s = party.services
    assert len(s.database.read("p", s.populations.list)) == min(batches, 1)
    folders = {stored.key.partition("/")[0] for stored in s.vault.objects.listed("")}
    assert len(folders) == batches
    assert not list(s.home.labels.glob("staging-*"))
    assert not [p for p in s.home.spill.rglob("*") if p.is_file() and not p.name.startswith(SERVED)]


def odd(n: int) -> pa.Table:
    """Ids of every length, some with letters beyond ASCII, some the beginning of others."""
    labels = label_table(n)["label"]
    return pa.table({"example_id": [f"{'é' * (i % 3)}{'ab' * (i % 5)}{i:x}" for i in range(n)], "label": labels})


@pytest.mark.parametrize("party", ["folder", STORE], indirect=True)
def test_a_batch_sealed_by_spark_is_as_any(party: LabelsParty, tmp_path: Path) -> None:
    table = odd(ROWS)
    told = run(party, stored(tmp_path / "labels", table, 3), prior="estimate", prior_epsilon="0.1")
    order = sorted(range(ROWS), key=lambda i: table["example_id"][i].as_py().encode())
    ids, index, objects = sealed(party, told["batch"])
    assert ids == table["example_id"].take(order).to_pylist()
    assert index == table["label"].take(order).to_numpy().astype(int).tolist()
    assert objects > 1
    nothing_left(party, batches=1)
    found = verify(Path(told["message"]), party.services.key.public, "features-party")
    assert read_message(list(found.paths), found.manifest)["example_id"].to_pylist() == ids
    # the same file again is the same batch, and this process draws it as well
    with pytest.raises(AlreadyReleased):
        run(party, tmp_path / "labels", prior="estimate", prior_epsilon="0.1")
    nothing_left(party, batches=1)
    party.services.message.engine = LocalEngine()
    again = run(party, tmp_path / "labels", additional_release=True)
    assert pq.read_table(again["message"])["example_id"].to_pylist() == ids


def test_listed_ids_without_a_label_take_the_missing_label_value(party: LabelsParty, tmp_path: Path) -> None:
    table, gone = odd(ROWS), {7, 8, 2990}
    some = table.filter(pa.array([i not in gone for i in range(ROWS)]))
    labels, listed = stored(tmp_path / "labels", some), stored(tmp_path / "list", table.select(["example_id"]), 2)
    with pytest.raises(LabelDPError, match="Some examples have no label, for instance") as refused:
        run(party, labels, listed)
    ids = table["example_id"].to_pylist()
    assert sorted(refused.value.extras()["examples_without_label"]) == sorted(ids[i] for i in gone)
    nothing_left(party)
    told = run(party, labels, listed, missing_label="4")
    found, index, _ = sealed(party, told["batch"])
    by_id = dict(zip(found, index, strict=True))
    wanted = {name: 4 if i in gone else int(table["label"][i].as_py()) for i, name in enumerate(ids)}
    assert by_id == wanted


def refusals(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """What is said, and what is wrong."""
    table = label_table(ROWS)
    ids, values = table["example_id"], table["label"].to_pylist()
    twice = pa.concat_tables([table, table.slice(11, 1)])
    again = r"One row is refused, for instance row \d+ of 'part-\d.parquet', field 'example_id': .* more than one row"
    more = stored(folder / "more", table)
    yield again, {"labels": stored(folder / "twice", twice, 2)}
    yield again, {"labels": more, "examples": stored(folder / "list", twice.select(["example_id"]), 2)}
    fewer = stored(folder / "fewer", table.slice(1).select(["example_id"]))
    yield "row .* is not in the batch's list of example ids", {"labels": more, "examples": fewer}
    outside = stored(folder / "outside", pa.table({"example_id": ids, "label": [98765.0, *values[1:]]}))
    yield "row .*: lies outside the label domain", {"labels": outside, "out_of_domain": "refuse"}
    nulls = stored(folder / "nulls", pa.table({"example_id": [None, *range(1, ROWS)], "label": values}))
    yield "is empty: each row needs an id", {"labels": nulls}
    yield "row .*'example_id': does not begin with the id prefix", {"labels": more, "id_prefix": "click-000001"}
    unit = {"unit_column": "who", "max_examples_per_unit": 1, "missing_label": "0"}
    yield "local engine", {"labels": more} | unit
    named = stored(folder / "named", table.rename_columns(["id", "label"]))
    yield "has no column 'example_id'", {"labels": named}
    (folder / "text.parquet").write_text("example_id,label\na,1\n")
    yield "cannot be read by Spark as Parquet", {"labels": folder / "text.parquet"}


def test_what_no_seal_takes_is_refused_and_leaves_nothing(
    party: LabelsParty, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for said, wrong in refusals(tmp_path):
        with pytest.raises(LabelDPError, match=said) as refused:
            run(party, **wrong)
        assert "98765" not in refused.value.detail
        assert "click-" not in refused.value.detail
        nothing_left(party)
    run(party, tmp_path / "more", id_prefix="click-")
    overlapping = stored(tmp_path / "overlap", pa.concat_tables([label_table(2000, prefix="x"), label_table(1)]))
    with pytest.raises(LabelDPError, match="already"):
        run(party, overlapping)
    nothing_left(party, batches=1)
    told = capfd.readouterr()
    assert "click-" not in told.err + told.out
    assert "98765" not in told.err + told.out


@pytest.mark.parametrize("how", ["exception", "exit"])
def test_a_task_that_dies_after_it_wrote_is_done_again(
    party: LabelsParty, spark: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Whether it took labels in or wrote a range of them; the draw is let alone."""
    (tmp_path / "notes").mkdir()

    def faulty(task: Any) -> Any:
        name = f"{how}-{type(task).__name__}"
        return task if isinstance(task, Drawing) else Faulty(task, str(tmp_path / "notes"), how, name)

    monkeypatch.setattr(spark, "hook", faulty)
    table = label_table(ROWS)
    told = run(party, stored(tmp_path / "labels", table))
    ids, index, objects = sealed(party, told["batch"])
    assert ids == table["example_id"].to_pylist()
    assert index == table["label"].to_numpy().astype(int).tolist()
    notes = [p.name for p in (tmp_path / "notes").iterdir()]
    assert len([n for n in notes if "Sealing" in n]) == objects
    assert any("Arriving" in n for n in notes)
    nothing_left(party, batches=1)


def test_erased_examples_are_left_to_the_local_engine(party: LabelsParty, tmp_path: Path) -> None:
    first = stored(tmp_path / "first", label_table(20))
    run(party, first, missing_label="0")
    party.services.erasures.request("shop", ["not seen yet"], "test")
    more = stored(tmp_path / "more", label_table(20, prefix="x"))
    with pytest.raises(LabelDPError, match="erased examples is sealed by the local engine"):
        run(party, more, missing_label="0")
    nothing_left(party, batches=1)
