"""An advertiser and a publisher as HTTP callers of two running services."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from features_party.client import FeaturesPartyClient
from labels_party.client import LabelsPartyClient

PREDICT_ROWS = 50_000
TIMEOUT = httpx.Timeout(60.0, read=300.0)


@dataclass(frozen=True)
class Access:
    """Where both services are, and the keys for them."""

    labels_url: str
    features_url: str
    owner: str
    ingest: str
    reader: str  # of role features
    trainer: str
    auditor: str
    labels_key: Path
    features_key: Path


class Advertiser:
    """Knows the labels. Owns the population and its budget; its backend's ingest key may send labels, nothing else."""

    def __init__(self, access: Access, rows: int, http: httpx.Client) -> None:
        self.owner = LabelsPartyClient(access.labels_url, access.owner, http=http)
        self.backend = LabelsPartyClient(access.labels_url, access.ingest, http=http, chunk_rows=max(1, -(-rows // 4)))

    def open(self, population: str, label: str, domain: str, lifetime: str, audience: str) -> str:
        """A population with one open batch; returns the batch."""
        self.owner.create_population(population, label, domain, lifetime, audiences=[audience])
        return str(self.owner.open_batch(population)["id"])

    def send(self, batch: str, ids: pa.Array, labels: npt.NDArray[np.float64], done: Callable[[int], None]) -> int:
        """Send labels in chunks; returns how many were accepted."""
        table = pa.table({"example_id": ids, "label": labels})
        return self.backend.add_labels(batch, table, progress=lambda sent, _: done(sent))

    def release(self, batch: str, epsilon: str, **options: Any) -> dict[str, Any]:
        """Charge, and wait until the message is published."""
        return self.owner.wait(str(self.owner.release(batch, epsilon, **options)["id"]))

    def left(self, population: str) -> str:
        """ε left per example, from the ledger."""
        return str(self.owner.budget(population)["batches"][0]["epsilon_left"])


class Publisher:
    """Knows the features. Sends ids, pulls messages, trains and predicts."""

    def __init__(self, access: Access, http: httpx.Client) -> None:
        self.access = access
        self.service = FeaturesPartyClient(access.features_url, access.trainer, http=http)

    def upload(self, features: pa.Table, id_column: str) -> str:
        """A feature table; returns its id."""
        return str(self.service.upload_table(features, id_column, "clicks")["id"])

    def send_ids(self, table: str, batch: str) -> int:
        """Declare the table's ids as the examples of an open batch; returns how many."""
        return int(self.service.send_ids(table, self.access.labels_url, batch, self.access.reader)["ids"])

    def pull(self, release: str) -> dict[str, Any]:
        """Have the service fetch, verify and account for a message; returns what it says."""
        found: dict[str, Any] = self.service.pull(self.access.labels_url, release, self.access.reader)["message"]
        return found

    def order(self, table: str, release: str, correction: str) -> str:
        """Put a training of trees alone in line, which is quick; returns its id."""
        return str(self.service.train(table, [release], model="trees", correction=correction)["id"])

    def wait(self, training: str, progress: Callable[[float], None]) -> str:
        """The id of the model once it is trained. Raises Conflict where the training failed."""
        for event in self.service.events(training):
            progress(float(event["share"]))
        return self.service.wait(training)

    def predict(self, model: str, features: pa.Table) -> npt.NDArray[np.float64]:
        """float64[n]: one prediction per row."""
        parts: list[float] = []
        for start in range(0, features.num_rows, PREDICT_ROWS):
            parts.extend(self.service.predict(model, features.slice(start, PREDICT_ROWS).to_pylist()))
        return np.array(parts, dtype=np.float64)


@contextmanager
def both(access: Access, rows: int) -> Iterator[tuple[Advertiser, Publisher]]:
    """The two callers, closed at the end."""
    with httpx.Client(timeout=TIMEOUT, trust_env=False) as labels, httpx.Client(timeout=TIMEOUT, trust_env=False) as to:
        yield Advertiser(access, rows, labels), Publisher(access, to)
