"""A labels party in a temporary home, driven through its services or its REST interface."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
from fastapi.testclient import TestClient

from label_dp.audit.store import Clock, utc_now
from label_dp.documents.bundle import Bundle
from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from label_dp.store.faults import FaultHook, no_faults
from labels_party.api.app import create_app
from labels_party.bootstrap import Services, bootstrap
from labels_party.labels.batches import SEALED
from labels_party.labels.seal import SealedLabels
from labels_party.settings import Settings
from tests.support.asked import release_wish
from tests.support.asking import population as parse_population
from tests.support.shared_routes import application


def label_table(n: int, k: int = 11, seed: int = 0, prefix: str = "click") -> pa.Table:
    """n ids with integer labels 0 … k − 1, skewed."""
    labels = np.random.default_rng(seed).binomial(k - 1, 0.3, n).astype(np.float64)
    return pa.table({"example_id": [f"{prefix}-{i:06d}" for i in range(n)], "label": labels})


class FakeClock:
    """A clock that stands still until a test moves it; starts at 2030-01-01T00:00:00Z."""

    def __init__(self) -> None:
        self.now = datetime(2030, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def move(self, **by: float) -> None:
        self.now += timedelta(**by)


class LabelsParty:
    def __init__(
        self,
        home: Path,
        *,
        database_url: str | None = None,
        faults: FaultHook = no_faults,
        clock: Clock = utc_now,
        **settings: Any,
    ) -> None:
        self.home = home
        # what a test does wakes the worker; looking for more at every moment took a tenth of the time
        given = {"home": home, "database_url": database_url, "poll_seconds": 0.5} | settings
        self.settings = Settings(**given)  # type: ignore[arg-type]  # pydantic converts
        self.services: Services = bootstrap(self.settings, faults=faults, clock=clock)
        self._clients: list[TestClient] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients:
            client.__exit__()
        self.services.close()

    @property
    def application(self) -> Any:
        """The application that the first client has started."""
        return self._clients[0].app

    # --- through REST -------------------------------------------------------------------------------------

    def client(self, role: str = "owner", audience: str | None = None) -> TestClient:
        """A client with a fresh key of `role`; the first one starts the application and its worker."""
        _, key = self.services.apikeys.create(role, audience or ("features-party" if role == "features" else None))
        if not self._clients:
            first = TestClient(application(create_app, self.services), raise_server_exceptions=False)
            first.__enter__()
            self._clients.append(first)
        # one request id for all, so that tests can compare whole problem bodies
        headers = {"Authorization": f"Bearer {key}", "X-Request-ID": "test"}
        another = TestClient(self._clients[0].app, raise_server_exceptions=False, headers=headers)
        another.portal = self._clients[0].portal  # one event loop, not one for each request
        return another

    def download(self, release: str, folder: Path, reader: TestClient | None = None) -> Path:
        """A published message as its reader gets it, in a new folder."""
        client = reader or self.client("features")
        folder.mkdir(parents=True)
        for file in client.get(f"/v1/releases/{release}").json()["files"]:
            answer = client.get(f"/v1/releases/{release}/files/{file['name']}")
            assert answer.status_code == 200, answer.text
            assert file["role"] == "envelope" or hashlib.sha256(answer.content).hexdigest() == file["sha256"]
            (folder / file["name"]).write_bytes(answer.content)
        return folder

    # --- through services ---------------------------------------------------------------------------------

    def sealed_positions(self, batch: str) -> dict[str, int]:
        """The domain positions of the labels of a sealed batch, by id."""
        s = self.services
        (segment,) = s.database.read("test.segments", lambda c: s.batches.segments(c, batch, SEALED))
        chunks = list(SealedLabels(s.vault, segment.key).chunks())
        ids = [i for part, _ in chunks for i in part.to_pylist()]
        return dict(zip(ids, (int(p) for _, part in chunks for p in part), strict=True))

    def sealed_batch(
        self,
        table: pa.Table,
        population: str = "shop",
        *,
        label: str = "revenue",
        domain: str = "0:10",
        lifetime: str = "10",
        audiences: list[str] | None = None,
    ) -> str:
        """Id of a sealed batch of `table`; the population is made on first use."""
        s = self.services

        def ensure(connection: Any) -> Any:
            found = s.populations.find(connection, population)
            declared = parse_population(population, label, Domain.parse(domain), lifetime, audiences=audiences)
            return found or s.populations.create(connection, declared, "test")

        owner = s.database.write("test.population", ensure)
        batch = s.database.write("test.batch", lambda c: s.batches.create(c, owner, "public"))
        s.intake.add_labels(batch.id, table, owner=True)
        s.sealer.seal(batch.id, "test")
        return batch.id

    def charge(self, batch: str, epsilon: str = "1", **options: Any) -> str:
        """Id of a charged, not yet drawn release; of RR-on-Bins, which is quick, unless `mechanism` says otherwise."""
        request = release_wish(Epsilon.parse(epsilon), **({"mechanism": "rr-on-bins"} | options))
        _, answer = self.services.work.ask(self.services.message, batch, request, "test")
        return str(answer["id"])

    def release(self, batch: str, epsilon: str = "1", **options: Any) -> str:
        """Id of a published release."""
        release = self.charge(batch, epsilon, **options)
        assert self.services.pipeline.run(release)
        return release

    def state(self, release: str) -> Any:
        return self.services.database.read("test.state", lambda c: self.services.work.get(c, release))

    def spent(self, batch: str) -> str:
        return str(self.services.database.read("test.spent", lambda c: self.services.ledger.spent(c, batch)))

    def bundle(self, release: str) -> Bundle:
        """The published message as a folder on disk."""
        files = self.services.database.read("test.files", lambda c: self.services.work.files(c, release))
        return Bundle((self.services.home.work / files[0].path).parent)
