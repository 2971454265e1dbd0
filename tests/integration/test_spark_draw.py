"""Draws by Spark: the same message as from this process, whatever happens to tasks on the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import chi2

from label_dp.documents.bundle import VerifiedMessage, verify
from label_dp.documents.rows import read_message
from label_dp.errors import InvalidInput, LabelDPError, Unavailable
from label_dp.spark.cluster import Cluster
from labels_party.labels import vault
from labels_party.labels.key_service import FileKeys
from labels_party.message.engine import LocalEngine
from labels_party.spark import engine as engine_module
from labels_party.spark.engine import SparkEngine
from tests.support.labels import LabelsParty, label_table
from tests.support.spark import QUICK, require
from tests.support.spark_faults import Faulty, Lingering, Wrong

pytestmark = pytest.mark.processes
ROWS, GROUP = 6000, 1000
STORE = "object store"


@pytest.fixture
def party(
    request: pytest.FixtureRequest, tmp_path: Path, spark: Cluster, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LabelsParty]:
    """A labels party that draws by Spark, a file for each thousand rows. Its labels are files, or in a store."""
    monkeypatch.setattr(vault, "ROW_GROUP", GROUP)
    monkeypatch.setattr(engine_module, "FEWEST_ROWS", 1)
    objects = request.getfixturevalue("bucket").url if getattr(request, "param", "") == STORE else ""
    with LabelsParty(tmp_path / "home", rows_per_file=GROUP, objects=objects) as made:
        made.services.message.engine = SparkEngine(spark)
        yield made


def published(party: LabelsParty, release: str) -> tuple[VerifiedMessage, pa.Table]:
    """A release that is whole and has left nothing but its files."""
    folder = party.bundle(release).path
    if not folder.exists():
        folder = party.download(release, party.home / release)
    found = verify(folder, party.services.key.public, "features-party")
    entries = found.manifest.files
    assert sorted(p.name for p in folder.iterdir()) == sorted(["manifest.dsse.json", *(e.name for e in entries)])
    table = read_message(list(found.paths), found.manifest)
    assert table["example_id"].to_pylist() == [f"click-{i:06d}" for i in range(found.manifest.n)]
    return found, table


def p_value(index: Any, bins: Any, matrix: Any) -> float:
    """Of outputs `bins` of the positions `index`, under a channel's matrix; cells of at least five expected."""
    k, m = matrix.shape
    seen = np.bincount(index * m + bins, minlength=k * m).reshape(k, m)
    expected = seen.sum(1, keepdims=True) * matrix
    cells = expected >= 5
    statistic = ((seen - expected)[cells] ** 2 / expected[cells]).sum()
    return float(chi2.sf(statistic, int(cells.sum() - cells.any(1).sum())))


@pytest.mark.parametrize("party", ["folder", STORE], indirect=True)
def test_a_draw_by_spark_is_the_channel_of_its_manifest(party: LabelsParty, monkeypatch: pytest.MonkeyPatch) -> None:
    """χ² at an error rate of 10⁻⁶; the control, the same draw against twice the ε, must fail. Counts are exact."""
    compared: list[int] = []
    histogram = SparkEngine.histogram

    def both(self: SparkEngine, job: Any, starts: Any, what: str, share: float) -> Any:
        ours = histogram(self, job, starts, what, share)
        theirs = LocalEngine().histogram(job, starts, what, share)
        assert np.add.reduceat(ours, starts).tolist() == np.add.reduceat(theirs, starts).tolist()
        compared.append(len(starts))
        return ours

    monkeypatch.setattr(SparkEngine, "histogram", both)
    labels = label_table(ROWS)
    batch = party.sealed_batch(labels)
    found, table = published(party, party.release(batch, "1", prior_epsilon="0.1"))
    assert [f.rows for f in found.manifest.message_files] == [GROUP] * (ROWS // GROUP)
    assert compared
    index, bins = labels["label"].to_numpy().astype(int), table["bin"].to_numpy().astype(int)
    channel = found.manifest.read_channel()
    assert p_value(index, bins, channel.matrix()) > 1e-6
    stricter, _ = published(party, party.release(batch, "3", prior_epsilon="0.1", additional_release=True))
    wrong = stricter.manifest.read_channel()
    assert wrong.m != channel.m or p_value(index, bins, wrong.matrix()) < 1e-6


ASKED: list[dict[str, Any]] = [
    {"mechanism": "auto"},
    {"mechanism": "one-bit", "prior": "uniform"},
    {"mechanism": "unbiased"},
    {"mechanism": "discrete-laplace"},
    {"mechanism": "exponential"},
    {"mechanism": "rr-with-prior", "clip_quantiles": ["0.9"], "clip_epsilon": "0.3"},
    {"mechanism": "rr-on-bins", "prior_epsilon": "theorem7", "loss": "absolute", "clip_quantiles": ["0.1", "0.9"],
     "clip_epsilon": "0.2"},
]  # fmt: skip


def test_every_option_of_a_release_is_drawn(party: LabelsParty) -> None:
    batch = party.sealed_batch(label_table(2500), lifetime="100")
    for asked in ASKED:
        found, _ = published(party, party.release(batch, "1", additional_release=True, **asked))
        assert found.manifest.n == 2500


@pytest.mark.parametrize("how", ["exception", "exit"])
def test_a_task_that_dies_after_its_file_was_written_is_drawn_again(
    party: LabelsParty, spark: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(spark, "hook", lambda task: Faulty(task, str(tmp_path), how))
    batch = party.sealed_batch(label_table(3000))
    release = party.release(batch, prior="uniform")
    assert len(list(tmp_path.glob(f"{how}-*"))) == 3
    published(party, release)
    assert (party.state(release).attempt, party.spent(batch)) == (1, "1")


def test_who_writes_after_the_end_finds_no_place(
    party: LabelsParty, spark: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark, "hook", lambda task: Lingering(task, str(tmp_path)))
    release = party.release(party.sealed_batch(label_table(2000)), prior="uniform")
    until = time.monotonic() + 30
    while len(told := [p.read_text() for p in tmp_path.glob("late-*")]) < 2 and time.monotonic() < until:
        time.sleep(0.1)
    assert told == ["FileNotFoundError"] * 2
    published(party, release)


def test_work_that_the_cluster_cannot_finish_stays_charged(
    party: LabelsParty, spark: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = party.sealed_batch(label_table(1000))
    release = party.charge(batch, prior="uniform")
    with monkeypatch.context() as patch:
        patch.setattr(spark, "hook", lambda task: Wrong(task, OSError("click-000001 has 7")))
        with pytest.raises(Unavailable, match="cluster did not finish") as refused:
            party.services.pipeline.run(release)
    assert "click" not in refused.value.detail
    assert party.services.pipeline.run(release)
    published(party, release)
    assert (party.state(release).attempt, party.spent(batch)) == (2, "1")


def test_what_a_draw_may_have_decided_fails_for_good(
    party: LabelsParty, spark: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    batch = party.sealed_batch(label_table(1000))
    release = party.charge(batch, prior="uniform")
    monkeypatch.setattr(spark, "hook", lambda task: Wrong(task, ValueError("click-000001 has 7")))
    with pytest.raises(LabelDPError, match="see the log"):
        party.services.pipeline.run(release)
    assert party.state(release).state == "failed"
    assert party.spent(batch) == "1"
    assert "ValueError" in caplog.text
    assert "click-000001" not in caplog.text


def test_too_many_cells_are_refused_before_the_charge(party: LabelsParty) -> None:
    batch = party.sealed_batch(label_table(1000), domain="0:100000")
    with pytest.raises(InvalidInput, match="at most 16,384 cells"):
        party.charge(batch, prior_epsilon="theorem7")
    assert party.spent(batch) == "0"
    assert party.release(batch, prior_epsilon="0.1")


def test_tasks_get_keys_of_the_batch_and_never_the_secret(
    party: LabelsParty, spark: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark import cloudpickle

    sent: list[bytes] = []

    def noted(task: Any) -> Any:
        sent.append(cloudpickle.dumps(task))
        return task

    monkeypatch.setattr(spark, "hook", noted)
    party.release(party.sealed_batch(label_table(1000)), prior_epsilon="0.1")
    secret = party.services.secrets.master
    assert len(sent) == 2
    wrapping = FileKeys(party.services.home).get(1)
    assert not any(secret in task or wrapping in task for task in sent)
    (sealed,) = list(party.services.home.labels.rglob("sealed-*.parquet"))
    key = party.services.keys.of(sealed.parent.name)
    assert all(key in task for task in sent)  # the search would find it


def test_the_command_seals_and_draws_by_spark_and_the_other_side_verifies(tmp_path: Path) -> None:
    """One process of its own, as a user runs it; a folder of Parquet in, a message out."""
    require()
    folder, home = tmp_path / "labels", tmp_path / "home"
    folder.mkdir()
    for i in range(2):
        pq.write_table(label_table(2000).slice(i * 1000, 1000), folder / f"part-{i}.parquet")
    environment = os.environ | {"LABELS_PARTY_HOME": str(home), "FEATURES_PARTY_HOME": str(tmp_path / "theirs")}
    environment |= {"JAVA_TOOL_OPTIONS": QUICK}

    def told(program: str, *arguments: str | Path) -> Any:
        command = [sys.executable, "-c", f"from {program}.cli import main; main()", *map(str, arguments), "--json"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout)

    options = "--id-column example_id --label-column label --domain 0:10 --epsilon 1 --budget 1 --population shop"
    where = ["--labels", folder, "--out", tmp_path / "m.parquet", "--engine", "spark", "--master", "local[2,4]"]
    made = told("labels_party", "privatize", *options.split(), *where)
    assert made["examples"] == 2000
    key = home / "keys" / "signing.pub"
    assert told("features_party", "verify", tmp_path / "m.parquet", "--labels-key", key)["verified"] is True
