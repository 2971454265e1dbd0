"""Events folded by Spark: the labels, the counts and the refusals of the local engine, whatever happens to tasks."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from label_dp.documents.bundle import verify
from label_dp.documents.rows import read_message
from label_dp.domain import Domain
from label_dp.errors import LabelDPError
from label_dp.schemas.events import EventRule
from label_dp.spark.cluster import Cluster
from labels_party.labels.batches import SEALED
from labels_party.labels.seal import SealedLabels
from labels_party.message import engine as local_engine
from labels_party.spark import engine as engine_module
from labels_party.spark import files as files_module
from labels_party.spark.engine import SparkEngine
from labels_party.spark.executor import folding
from labels_party.spark.executor.drawing import Drawing
from tests.support.asking import population as parse_population
from tests.support.asking import privatize
from tests.support.asking import request as parse_request
from tests.support.events import DAY, RULE, SECOND, event
from tests.support.labels import LabelsParty
from tests.support.spark_faults import Faulty

pytestmark = pytest.mark.processes
CLICKS = [f"click-{i:04d}" for i in range(1500)]
TIMES = {click: SECOND + (i % 3 - 1) * DAY for i, click in enumerate(CLICKS)}
RULES = {"window_days": 2, "other_currency": "leave-out"}


@pytest.fixture
def party(tmp_path: Path, spark: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[LabelsParty]:
    """A labels party whose engine is the shared session; ranges and parts of some hundred rows."""
    monkeypatch.setattr(files_module, "RANGE_ROWS", 700)
    monkeypatch.setattr(folding, "AT_ONCE", 500)
    monkeypatch.setattr(engine_module, "FEWEST_ROWS", 1)
    with LabelsParty(tmp_path / "home", worker=False) as made:
        own = made.services
        made.services = dataclasses.replace(own, cluster=spark)
        made.services.message.engine = SparkEngine(spark)
        yield made
        made.services = own


def history(seed: int = 0, n: int = 4000) -> list[dict[str, Any]]:
    """Events of all kinds: records of one event lie far apart, some have no id, some no click, some an unlisted one."""
    chance = random.Random(seed)
    events = []
    for number in range(n):
        click = chance.choice([None, "unlisted", *chance.choices(CLICKS, k=12)])
        user = {"click_id": click, "mmt_only": chance.choice([None, None, None, True, False])}
        one = event(None, chance.choice([None, number % 30, 12.25, 0.5]), user_data=user)
        one["id"] = chance.choice([None, f"order-{chance.randrange(n // 2)}"])
        one["event_type"] = chance.choice(["purchase", "purchase", "refund", "page_view"])
        one["currency_code"] = chance.choice(["EUR", "EUR", "usd"])
        one["timestamp"] = SECOND + chance.randrange(-2 * DAY, 3 * DAY)
        events.append(one)
    return events


def table(events: Sequence[dict[str, Any]]) -> pa.Table:
    names = dict.fromkeys(name for one in events for name in one)
    return pa.table({name: [one.get(name) for one in events] for name in names})


def stored(folder: Path, rows: pa.Table, files: int = 3) -> Path:
    """A table as a folder of Parquet files of several row groups, in the order of its rows."""
    folder.mkdir()
    step = -(-len(rows) // files)
    for i in range(files):
        pq.write_table(rows.slice(i * step, step), folder / f"part-{i:03d}.parquet", row_group_size=300)
    return folder


def listed(path: Path, ids: Sequence[str] = CLICKS) -> Path:
    pq.write_table(pa.table({"example_id": list(ids), "time": [TIMES[i] for i in ids]}), path)
    return path


def folded(party: LabelsParty, name: str, events: Path, examples: Path, **rule: Any) -> Any:
    declared = EventRule(**(RULE | RULES | rule))
    population = parse_population(name, name, Domain.parse("0:40"), "3", missing_label=0, events=declared)
    request = parse_request(party.services, population, epsilon="1", prior="uniform")
    return privatize(party.services, events, population, request, party.home.parent / f"{name}.parquet", examples)


def sealed(party: LabelsParty, batch: str) -> dict[str, int]:
    s = party.services
    segments = s.database.read("look", lambda c: s.batches.segments(c, batch, SEALED))
    labels: dict[str, int] = {}
    for ids, positions in SealedLabels(s.vault, *(segment.key for segment in segments)).chunks():
        labels |= dict(zip(ids.to_pylist(), positions.tolist(), strict=True))
    assert list(labels) == sorted(labels)
    return labels


def locally(party: LabelsParty, name: str, rows: pa.Table, examples: Path, **rule: Any) -> Any:
    """What this process makes of the same events in one file."""
    path = party.home.parent / f"{name}-events.parquet"
    pq.write_table(rows, path)
    spark = party.services
    party.services = dataclasses.replace(spark, cluster=None)
    party.services.message.engine, engine = local_engine.LocalEngine(), spark.message.engine
    try:
        return folded(party, name, path, examples, **rule)
    finally:
        party.services = spark
        party.services.message.engine = engine


def nothing_left(party: LabelsParty) -> None:
    s = party.services
    assert s.database.read("p", s.populations.list) == []
    assert [path for path in (*s.home.labels.rglob("*"), *s.home.spill.rglob("*")) if path.is_file()] == []
    assert not list(s.home.labels.glob("staging-*"))


@pytest.mark.parametrize("take", ["sum", "last"])
def test_labels_and_counts_are_those_of_the_local_engine(
    party: LabelsParty, spark: Cluster, tmp_path: Path, take: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made by tasks that hold keys of the batch and of digests, and not the party's secret."""
    from pyspark import cloudpickle

    sent: list[bytes] = []
    monkeypatch.setattr(spark, "hook", lambda task: sent.append(cloudpickle.dumps(task)) or task)
    rows, examples = table(history()), listed(tmp_path / "list.parquet")
    local = locally(party, "local", rows, examples, take=take)
    told = folded(party, "spark", stored(tmp_path / "events", rows), examples, take=take)
    labels = sealed(party, told["batch"])
    assert labels == sealed(party, local["batch"])
    assert not any(party.services.secrets.master in task for task in sent)
    key = party.services.keys.of(told["batch"])
    assert sum(key in task for task in sent) >= 5  # the search would find it
    assert list(labels) == CLICKS
    assert len(set(labels.values())) > 10
    assert told["events"] == local["events"] == party.services.sealer.events.counts(told["batch"])
    assert all(told["events"].values())
    message = verify(Path(told["message"]), party.services.key.public, "features-party")
    assert read_message(list(message.paths), message.manifest)["example_id"].to_pylist() == CLICKS


def test_a_task_that_dies_is_done_again_and_counts_once(
    party: LabelsParty, spark: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each task dies with its process once, after it gave its first block; the draw is let alone."""
    rows, examples = table(history(1, 1200)), listed(tmp_path / "list.parquet")
    local = locally(party, "local", rows, examples, take="count", window_days=None)
    (tmp_path / "notes").mkdir()

    def faulty(task: Any) -> Any:
        name = getattr(task, "__name__", type(task).__name__)
        return task if isinstance(task, Drawing) else Faulty(task, str(tmp_path / "notes"), "exit", name)

    monkeypatch.setattr(spark, "hook", faulty)
    told = folded(party, "spark", stored(tmp_path / "events", rows, 1), examples, take="count", window_days=None)
    assert sealed(party, told["batch"]) == sealed(party, local["batch"])
    assert told["events"] == local["events"]
    died = {path.name.partition("-")[0] for path in (tmp_path / "notes").iterdir()}
    assert died == {"arrive", "merge", "enlist", "fold", "Sealing"}


def test_what_no_fold_takes_is_refused_with_its_place_and_leaves_nothing(
    party: LabelsParty, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    examples, events = listed(tmp_path / "list.parquet"), history(2, 900)
    good = stored(tmp_path / "good", table(events))
    bad = [*events[:700], events[0] | {"timestamp": -98_765_432, "id": "SECRET"}, *events[700:]]
    twice = listed(tmp_path / "twice.parquet", [*CLICKS, CLICKS[7]])
    late = pa.table({"example_id": ["a", "b"], "time": [SECOND, SECOND * 1000]})
    pq.write_table(late, tmp_path / "late.parquet")
    untimed = pa.table({"example_id": ["a", "b"]})
    pq.write_table(untimed, tmp_path / "untimed.parquet")
    text = table(events).set_column(0, "data_set_id", pa.array(["other"] * len(events)))
    floats = table([one | {"id": 1.5} for one in events])
    (tmp_path / "none").mkdir()
    pq.write_table(table(events).slice(0, 0), tmp_path / "none" / "part.parquet")
    (tmp_path / "text.parquet").write_text("{}")
    place = r"One row is refused, for instance row 99 of 'part-002.parquet', field 'timestamp': must be whole seconds"
    for wrong, said in (
        ((stored(tmp_path / "bad", table(bad)), examples), place),
        ((stored(tmp_path / "other", text), examples), "900 rows are refused, .* 'data_set_id': names no data set"),
        ((stored(tmp_path / "floats", floats), examples), "field 'id': must be text .*; the column holds double"),
        ((tmp_path / "none", examples), "There is no event in"),
        ((tmp_path / "text.parquet", examples), "cannot be read by Spark as Parquet"),
        ((good, twice), "row .* of 'twice.parquet', field 'example_id': this id is in more than one row"),
        ((good, tmp_path / "late.parquet"), "row 2 of 'late.parquet', field 'time': must be whole seconds"),
        ((good, tmp_path / "untimed.parquet"), "has no column 'time'"),
    ):
        with pytest.raises(LabelDPError, match=said) as refused:
            folded(party, "spark", *wrong)
        assert "98765432" not in refused.value.detail.replace(",", "").replace("_", "")
        nothing_left(party)
    told = capfd.readouterr()
    assert "SECRET" not in told.err + told.out
    assert "click-" not in told.err + told.out
