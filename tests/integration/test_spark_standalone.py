"""A draw under a standalone master with two workers: an executor is lost, a slow task is overtaken and writes late."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from label_dp.documents.bundle import verify
from label_dp.documents.rows import read_message
from label_dp.spark.cluster import Cluster
from labels_party.labels import vault
from labels_party.spark import engine as engine_module
from labels_party.spark.engine import SparkEngine
from tests.support.labels import LabelsParty, label_table
from tests.support.spark import standalone
from tests.support.spark_faults import Faulty, Lingering

pytestmark = pytest.mark.processes
OVERTAKING = {
    "spark__speculation": "true",
    "spark__speculation__interval": "100ms",
    "spark__speculation__quantile": "0.5",
    "spark__speculation__minTaskRuntime": "100ms",
    "spark__python__task__killTimeout": "1s",
}


@pytest.fixture(scope="module")
def workers(spark: Cluster) -> Iterator[Cluster]:
    spark.close()  # a process has one session; that one starts again when it is asked for something
    with standalone(**OVERTAKING) as cluster:
        yield cluster


@pytest.mark.parametrize("how", ["executor", "slow"])
def test_what_was_lost_or_overtaken_is_no_part_of_the_message(
    workers: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """In the slow case a process that the loser left behind writes once the folder is gone."""
    monkeypatch.setattr(vault, "ROW_GROUP", 1000)
    monkeypatch.setattr(engine_module, "FEWEST_ROWS", 1)
    notes = tmp_path / "notes"
    notes.mkdir()
    monkeypatch.setattr(workers, "hook", lambda task: Faulty(Lingering(task, str(notes)), str(notes), how, pieces=(0,)))
    with LabelsParty(tmp_path / "home", rows_per_file=1000) as party:
        party.services.message.engine = SparkEngine(workers)
        release = party.release(party.sealed_batch(label_table(4000)), prior="uniform")
        assert [p.name for p in notes.glob(f"{how}-*")] == [f"{how}-0"]
        for killed in notes.glob("killed-*"):
            assert "ExecutorBackend" in killed.read_text()
            assert not Path("/proc", killed.name.removeprefix("killed-")).exists()
        assert len(list(notes.glob("killed-*"))) == (how == "executor")
        until = time.monotonic() + 30
        while len(told := [p.read_text() for p in notes.glob("late-*")]) < 5 and time.monotonic() < until:
            time.sleep(0.1)
        assert set(told) == {"FileNotFoundError"}
        assert len(told) >= 5  # four pieces, and the second attempt at one
        found = verify(party.bundle(release).path, party.services.key.public, "features-party")
        table = read_message(list(found.paths), found.manifest)
        assert table["example_id"].to_pylist() == [f"click-{i:06d}" for i in range(4000)]
        names = ["manifest.dsse.json", *(entry.name for entry in found.manifest.files)]
        assert sorted(p.name for p in party.bundle(release).path.iterdir()) == sorted(names)
        assert party.state(release).attempt == 1
