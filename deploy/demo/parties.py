"""The two people of the story as HTTP callers: the advertiser (labels party) and the publisher (features party)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from labels_party.client import LabelsPartyClient, RemoteProblem
from shared.errors import Conflict, InvalidInput, Unavailable

PARQUET = "application/vnd.apache.parquet"
TRAINING_SECONDS = 900.0
POLL_SECONDS = 0.2
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
        self._http = httpx.Client(timeout=httpx.Timeout(60, read=300), trust_env=False)
        self.owner = LabelsPartyClient(url, owner_key, http=self._http)
        chunk = max(1, -(-rows // LABEL_CHUNKS))
        self.backend = LabelsPartyClient(url, ingest_key, http=self._http, chunk_rows=chunk)

    def open(self, population: str, label: str, domain: str, lifetime: str, audience: str) -> str:
        """A population with one open batch; returns the batch."""
        self.owner.create_population(population, label, domain, lifetime, audiences=[audience])
        return str(self.owner.open_batch(population)["id"])

    def send(self, batch: str, ids: pa.Array, revenue: npt.NDArray[np.float64], done: Callable[[int], None]) -> int:
        """Send labels in chunks; returns how many were accepted."""
        return self.backend.add_labels(batch, pa.table({"example_id": ids, "label": revenue}), done)

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
        self._http = httpx.Client(
            base_url=access.features_url, timeout=httpx.Timeout(60, read=300), trust_env=False, follow_redirects=False
        )

    def upload(self, features: pa.Table, id_column: str) -> str:
        """A feature table; returns its id."""
        params = {"id_column": id_column, "name": "clicks"}
        answer = self._call(
            "POST", "/v1/feature-tables", params=params, content=_parquet(features), headers={"Content-Type": PARQUET}
        )
        return str(answer["id"])

    def send_ids(self, table: str, batch: str) -> int:
        """Declare the table's ids as the examples of an open batch; returns how many."""
        body = {"url": self.access.labels_url, "batch": batch} | self._reader()
        return int(self._call("POST", f"/v1/feature-tables/{table}/id-list", json=body)["ids"])

    def pull(self, release: str) -> dict[str, Any]:
        """Have the service fetch, verify and account for a message; returns what it says."""
        body = {"url": self.access.labels_url, "release": release} | self._reader()
        found: dict[str, Any] = self._call("POST", "/v1/messages", json=body)["message"]
        return found

    def hand_in(self, parts: dict[str, bytes]) -> dict[str, Any]:
        """Upload a message that came by other ways. Raises RemoteProblem where it does not verify."""
        files = [("file", (name, data, "application/octet-stream")) for name, data in parts.items()]
        return self._call("POST", "/v1/messages", files=files)

    def order(self, table: str, release: str, correction: str) -> str:
        """Put a training in line; returns its id."""
        body = {"feature_table": table, "messages": [release], "correction": correction}
        return str(self._call("POST", "/v1/trainings", json=body)["id"])

    def wait(self, training: str, progress: Callable[[float], None]) -> str:
        """The id of the model once it is trained. Raises Conflict where the training failed."""
        end = time.monotonic() + TRAINING_SECONDS
        while time.monotonic() < end:
            state = self._call("GET", f"/v1/trainings/{training}")
            if state["state"] == "succeeded":
                return str(state["model"])
            if state["state"] == "failed":
                raise Conflict(f"The training failed: {(state['problem'] or {}).get('detail', 'see the log')}")
            progress(float(state["share"]))
            time.sleep(POLL_SECONDS)
        raise Unavailable(f"The training was not done after {TRAINING_SECONDS:g} seconds.")

    def card(self, model: str) -> dict[str, Any]:
        """Where the model comes from and what it may claim."""
        card: dict[str, Any] = self._call("GET", f"/v1/models/{model}")["card"]
        return card

    def predict(self, model: str, features: pa.Table) -> npt.NDArray[np.float64]:
        """float64[n]: one prediction per row."""
        parts = []
        for start in range(0, features.num_rows, PREDICT_ROWS):
            rows = features.slice(start, PREDICT_ROWS).to_pylist()
            parts.extend(self._call("POST", f"/v1/models/{model}/predict", json={"rows": rows})["predictions"])
        return np.array(parts, dtype=np.float64)

    def audit_export(self) -> bytes:
        """The signed export of the features party's audit store."""
        return self._send("GET", "/v1/audit/export", key=self.access.auditor).content

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _reader(self) -> dict[str, str]:
        return {} if self.access.reader is None else {"api_key": self.access.reader}

    def _call(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        data: dict[str, Any] = self._send(method, path, **options).json()
        return data

    def _send(self, method: str, path: str, *, key: str | None = None, **options: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {key or self.access.trainer}"} | options.pop("headers", {})
        try:
            answer = self._http.request(method, path, headers=headers, **options)
        except httpx.TransportError as error:
            raise Unavailable(f"The features party at {self.access.features_url} does not answer ({error}).") from None
        if answer.is_success:
            return answer
        try:
            body = answer.json()
        except ValueError:
            body = {"detail": f"The features party answered with status {answer.status_code}."}
        raise RemoteProblem(answer.status_code, body if isinstance(body, dict) else {})


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


def _parquet(table: pa.Table) -> bytes:
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())
