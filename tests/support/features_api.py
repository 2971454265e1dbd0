"""A running features party behind its REST interface, and what tests send to it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from fastapi.testclient import TestClient

from features_party.api.app import create_app
from features_party.bootstrap import Services
from features_party.client import FeaturesPartyClient
from label_dp.channels.base import Channel
from tests.support.messages import Sender, World, features_party, one_bit, world
from tests.support.shared_routes import application
from tests.support.upload_formats import parquet

WORLD = world(400)
PARQUET = {"Content-Type": "application/vnd.apache.parquet"}
ENDED = ("succeeded", "failed", "cancelled")


def message_files(
    sender: Sender, folder: Path, sent: World = WORLD, channel: Channel | None = None, **options: Any
) -> dict[str, bytes]:
    """A message of ε = 3 about a world, as file names and bytes."""
    folder.mkdir(exist_ok=True)
    path = folder / "m.parquet"
    given = {"epsilon": "3", "prior": np.full(11, 1 / 11)} | options
    sender.write(path, sent.ids, sent.labels, channel or one_bit(epsilon=3.0), **given)
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def form(files: dict[str, bytes]) -> list[tuple[str, tuple[str, bytes, str]]]:
    return [("file", (name, data, "application/octet-stream")) for name, data in files.items()]


class Api:
    """A running features party; `trainer` and `auditor` are HTTP clients with keys of these roles."""

    def __init__(self, services: Services, app: TestClient) -> None:
        self.services, self.app = services, app
        self.trainer, self.auditor = self.client("trainer"), self.client("auditor")

    def client(self, role: str) -> TestClient:
        key = self.services.apikeys.create(role)[1]
        another = TestClient(self.app.app, raise_server_exceptions=False, headers={"Authorization": f"Bearer {key}"})
        another.portal = self.app.portal  # one event loop, not one for each request
        return another

    def python(self, role: str = "trainer") -> FeaturesPartyClient:
        return FeaturesPartyClient("http://testserver", self.services.apikeys.create(role)[1], http=self.app)

    def table(self, data: pa.Table | None = None) -> str:
        body = parquet(WORLD.table() if data is None else data)
        answer = self.trainer.post("/v1/feature-tables?id_column=click_id", content=body, headers=PARQUET)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def accept(self, files: dict[str, bytes]) -> None:
        answer = self.trainer.post("/v1/messages", files=form(files))
        assert answer.status_code == 201, answer.text

    def finished(self, training: str, seconds: float = 120.0) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            row: dict[str, Any] = self.trainer.get(f"/v1/trainings/{training}").json()
            if row["state"] in ENDED:
                return row
            time.sleep(0.03)
        raise AssertionError(f"training did not end: {row}")

    def trained(self, table: str | None = None, messages: tuple[str, ...] = ("rel_1",), **options: Any) -> str:
        """The id of a model; linear unless said otherwise."""
        body = {"feature_table": table or self.table(), "messages": list(messages), "model": "linear"} | options
        answer = self.trainer.post("/v1/trainings", json=body)
        assert answer.status_code == 202, answer.text
        ended = self.finished(answer.json()["id"])
        assert ended["state"] == "succeeded", ended
        return str(ended["model"])


@contextmanager
def running(tmp_path: Path, sender: Sender, **settings: Any) -> Iterator[Api]:
    """A features party that trusts `sender`, with a data folder and bodies of 4 MiB at most."""
    (tmp_path / "data").mkdir()
    services = features_party(
        tmp_path / "home", **({"data_dir": tmp_path / "data", "max_body_bytes": 1 << 22} | settings)
    )
    services.pinned.pin(sender.public_key(tmp_path))
    with TestClient(application(create_app, services), raise_server_exceptions=False) as app:
        yield Api(services, app)
