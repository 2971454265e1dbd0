"""The two people of the story as HTTP callers: the advertiser (labels party) and the publisher (features party)."""

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
from shared.errors import InvalidInput

TIMEOUT = httpx.Timeout(60.0, read=300.0)
PREDICT_ROWS = 50_000
LABEL_CHUNKS = 4


@dataclass(frozen=True)
class Access:
    """Where both services are, and the keys for them: `labels_*` made by the labels party, the rest by the other."""

    labels_url: str
    features_url: str
    owner: str
    ingest: str
    reader: str | None  # of role features; None where the features party has its own configured
    trainer: str
    auditor: str
    labels_key: Path
    features_key: Path

    @classmethod
    def from_folder(cls, labels_url: str, features_url: str, folder: Path) -> Access:
        """Keys in files, as docker-compose.yml makes them. Raises InvalidInput naming the missing file."""

        def secret(name: str) -> str:
            try:
                text = (folder / name).read_text(encoding="utf-8").strip()
            except OSError as error:
                raise InvalidInput(f"The key file '{folder / name}' cannot be read ({error.strerror}).") from None
            if not text:
                raise InvalidInput(f"The key file '{folder / name}' is empty; make the key again.")
            return text

        secret("labels-party.pub")
        secret("features-party.pub")
        return cls(
            labels_url=labels_url,
            features_url=features_url,
            owner=secret("owner.key"),
            ingest=secret("ingest.key"),
            reader=None,
            trainer=secret("trainer.key"),
            auditor=secret("auditor.key"),
            labels_key=folder / "labels-party.pub",
            features_key=folder / "features-party.pub",
        )


class Advertiser:
    """Knows the revenue. Owns the population and its budget; its backend's ingest key may send labels, nothing else."""

    def __init__(self, url: str, owner_key: str, ingest_key: str, rows: int) -> None:
        # proxies of the visitor's environment have no business between two local services
        self._http = httpx.Client(timeout=TIMEOUT, trust_env=False)
        self.owner = LabelsPartyClient(url, owner_key, http=self._http)
        chunk = max(1, -(-rows // LABEL_CHUNKS))
        self.backend = LabelsPartyClient(url, ingest_key, http=self._http, chunk_rows=chunk)

    def open(self, population: str, label: str, domain: str, lifetime: str, audience: str) -> str:
        """A population with one open batch; returns the batch."""
        self.owner.create_population(population, label, domain, lifetime, audiences=[audience])
        return str(self.owner.open_batch(population)["id"])

    def send(self, batch: str, ids: pa.Array, revenue: npt.NDArray[np.float64], done: Callable[[int], None]) -> int:
        """Send labels in chunks; returns how many were accepted."""
        return self.backend.add_labels(
            batch, pa.table({"example_id": ids, "label": revenue}), progress=lambda sent, _: done(sent)
        )

    def release(self, batch: str, epsilon: str, **options: Any) -> dict[str, Any]:
        """Charge, and wait until the message is published."""
        asked = self.owner.release(batch, epsilon, **options)
        return self.owner.wait(str(asked["id"]))

    def left(self, population: str) -> str:
        """ε left per example, from the ledger."""
        return str(self.owner.budget(population)["batches"][0]["epsilon_left"])

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


class Publisher:
    """Knows the features. Sends ids, pulls messages, trains and predicts."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._http = httpx.Client(timeout=TIMEOUT, trust_env=False)
        self.service = FeaturesPartyClient(access.features_url, access.trainer, http=self._http)
        self.auditor = FeaturesPartyClient(access.features_url, access.auditor, http=self._http)

    def upload(self, features: pa.Table, id_column: str) -> str:
        """A feature table; returns its id."""
        return str(self.service.upload_table(features, id_column, "clicks")["id"])

    def send_ids(self, table: str, batch: str) -> int:
        """Declare the table's ids as the examples of an open batch; returns how many."""
        return int(self.service.send_ids(table, self.access.labels_url, batch, self.access.reader)["ids"])

    def pull(self, release: str) -> dict[str, Any]:
        """Have the service fetch, verify and account for a message; returns what it says."""
        answer = self.service.pull(self.access.labels_url, release, self.access.reader)
        found: dict[str, Any] = answer["message"]
        return found

    def order(self, table: str, release: str, correction: str) -> str:
        """Put a training of trees alone in line, which is quick; returns its id."""
        return str(self.service.train(table, [release], model="trees", correction=correction)["id"])

    def wait(self, training: str, progress: Callable[[float], None]) -> str:
        """The id of the model once it is trained. Raises Conflict where the training failed."""
        for event in self.service.events(training):
            progress(float(event["share"]))
        return self.service.wait(training)

    def card(self, model: str) -> dict[str, Any]:
        """Where the model comes from and what it may claim."""
        card: dict[str, Any] = self.service.model(model)["card"]
        return card

    def predict(self, model: str, features: pa.Table) -> npt.NDArray[np.float64]:
        """float64[n]: one prediction per row."""
        parts: list[float] = []
        for start in range(0, features.num_rows, PREDICT_ROWS):
            parts.extend(self.service.predict(model, features.slice(start, PREDICT_ROWS).to_pylist()))
        return np.array(parts, dtype=np.float64)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


@contextmanager
def both(access: Access, rows: int) -> Iterator[tuple[Advertiser, Publisher]]:
    """The two callers, closed at the end."""
    advertiser = Advertiser(access.labels_url, access.owner, access.ingest, rows)
    publisher = Publisher(access)
    try:
        yield advertiser, publisher
    finally:
        advertiser.close()
        publisher.close()
