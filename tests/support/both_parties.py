"""Both services as processes on loopback, and the same job by command line, in this process, on files."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from deploy.demo.services import Service
from tests.support.commands import command
from tests.support.real_data import ID, Task
from tests.support.two_people import Access, Advertiser, Publisher, both

AUDIENCE = "features-party"


def labels_keys(home: Path, *roles: str) -> dict[str, str]:
    """API keys by role, of a labels party whose home is made here; without a process for each."""
    from labels_party.bootstrap import bootstrap
    from labels_party.settings import Settings

    party = bootstrap(Settings(home=home))
    try:
        return {role: party.apikeys.create(role, AUDIENCE if role == "features" else None)[1] for role in roles}
    finally:
        party.close()


def features_keys(home: Path, pinned: Path, *roles: str) -> dict[str, str]:
    """The same of a features party, which pins a labels party's key."""
    from features_party.bootstrap import bootstrap
    from features_party.settings import Settings

    party = bootstrap(Settings(home=home))
    try:
        party.pinned.pin(pinned)
        return {role: party.apikeys.create(role)[1] for role in roles}
    finally:
        party.close()


@contextmanager
def two_services(folder: Path, rows: int = 200_000) -> Iterator[tuple[Advertiser, Publisher, Access]]:
    """Fresh homes, keys of every role, the labels party's key pinned; both processes stopped at the end."""
    kernels = Path(os.environ["NUMBA_CACHE_DIR"])  # compiled once for all tests
    labels = Service("labels-party", "LABELS_PARTY_", folder / "lp", folder / "lp.log", kernels)
    features = Service("features-party", "FEATURES_PARTY_", folder / "fp", folder / "fp.log", kernels)
    labels.environment["POLL_SECONDS"] = "0.1"
    features.environment["THREADS"] = "1"  # tests run side by side
    try:
        pinned = folder / "lp" / "keys" / "signing.pub"
        keys = labels_keys(folder / "lp", "owner", "ingest", "features")
        trainer, auditor = features_keys(folder / "fp", pinned, "trainer", "auditor").values()
        for service in (labels, features):
            service.launch()
        for service in (labels, features):
            service.await_ready()
        access = Access(
            labels.url, features.url, keys["owner"], keys["ingest"], keys["features"], trainer, auditor,
            pinned, folder / "fp" / "keys" / "signing.pub",
        )  # fmt: skip
        with both(access, rows) as (advertiser, publisher):
            yield advertiser, publisher, access
    finally:
        for service in (features, labels):
            service.stop()


class CommandLine:
    """Both console commands on files, in homes of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            "LABELS_PARTY_HOME": str(folder / "lp"),
            "FEATURES_PARTY_HOME": str(folder / "fp"),
            "FEATURES_PARTY_THREADS": "1",  # tests run side by side
        }
        self.labels_key = folder / "lp" / "keys" / "signing.pub"

    def run(self, name: str, *arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = command(name, *arguments, folder=self.folder, environment=self.environment)
        assert done.returncode == code, f"{name} {arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def json(self, name: str, *arguments: str | Path) -> Any:
        return json.loads(self.run(name, *arguments, "--json").stdout)

    def write(self, task: Task, most_features: int | None = None) -> None:
        """The task's tables as files of the two parties and of the judge; the publisher may know fewer rows."""
        pq.write_table(task.labels(), self.folder / "labels.parquet")
        pq.write_table(task.features().slice(0, most_features), self.folder / "features.parquet")
        pq.write_table(task.test, self.folder / "test.parquet")

    def privatize(self, task: Task, epsilon: str, name: str, *options: str) -> dict[str, Any]:
        """One more release of the task's labels; returns what the command printed."""
        base = ("--labels", self.folder / "labels.parquet", "--id-column", ID, "--label-column", task.label)
        rest = ("--domain", task.domain, "--population", task.name, "--budget", "100", "--loss", task.loss)
        out = ("--epsilon", epsilon, "--additional-release", "--out", self.folder / f"{name}.parquet")
        found: dict[str, Any] = self.json("labels-party", "privatize", *base, *rest, *out, *options)
        return found

    def train(self, name: str, model: str, *options: str) -> dict[str, Any]:
        """Train on one message and test on true labels; returns the evaluation."""
        files = ("--message", self.folder / f"{name}.parquet", "--features", self.folder / "features.parquet")
        out = self.folder / model
        self.run(
            "features-party",
            "train",
            *files,
            "--labels-key",
            self.labels_key,
            "--id-column",
            ID,
            "--out",
            out,
            *options,
        )
        return self.evaluate(model)

    def evaluate(self, model: str) -> dict[str, Any]:
        label = json.loads((self.folder / model / "card.json").read_text())["label"]
        done = self.run(
            "features-party", "evaluate", "--model", self.folder / model, "--examples", self.folder / "test.parquet",
            "--label-column", label, "--clip", "--json",
        )  # fmt: skip
        found: dict[str, Any] = json.loads(done.stdout)
        return found


def ids_as_text(table: pa.Table) -> pa.Array:
    """The canonical spelling of integer ids."""
    return table[ID].cast(pa.string())
