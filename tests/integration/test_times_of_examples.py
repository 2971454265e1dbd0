"""A publisher's service sends the time of each example with its id, and events count within days of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

from features_party.api.app import create_app
from tests.support.events import DAY, SECOND, EventShop, event
from tests.support.features_api import Api, features_party
from tests.support.labels import LabelsParty
from tests.support.serving import serving

pytestmark = pytest.mark.extended

IDS = ["a", "b", "c"]
SECONDS = pa.array([SECOND, SECOND - 2 * DAY, SECOND + 1])
COLUMNS: dict[str, Any] = {
    "seconds": SECONDS,
    "float": SECONDS.cast(pa.float64()),
    "stamp": SECONDS.cast(pa.timestamp("s")).cast(pa.timestamp("us", "UTC")),
    "text": pa.array(["x", "y", "z"]),
    "gaps": pa.array([SECOND, None, SECOND]),
}


def test_times_go_with_ids_and_bound_what_counts(tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "labels") as party:
        shop, key = EventShop(party), party.services.apikeys.create("features", "features-party")[1]
        services = features_party(tmp_path / "home")
        services.pinned.pin(party.services.home.public_key)
        with serving(shop.owner.app) as url, TestClient(create_app(services)) as app:
            api = Api(services, app)
            table = api.table(pa.table({"click_id": IDS, **COLUMNS}))

            def send(batch: str, column: str) -> Any:
                asked = {"url": url, "batch": batch, "api_key": key, "time_column": column}
                return api.trainer.post(f"/v1/feature-tables/{table}/id-list", json=asked)

            population = shop.population(window_days=1)
            for column in ("text", "gaps", "nothing"):
                refused = send(shop.open(population), column)
                assert refused.status_code == 422, refused.text
                assert f"'{column}'" in refused.json()["detail"]
            for number, column in enumerate(("seconds", "float", "stamp")):
                batch = shop.open(shop.population(f"shop-{column}", window_days=1))
                answer = send(batch, column)
                assert (answer.status_code, answer.json().get("ids")) == (200, 3), answer.text
                shop.send(*(event(i, 5, id=f"{number}-{i}") for i in IDS))  # b's window is over, c's has not begun
                assert shop.sealed(batch) == {"a": 5, "b": 0, "c": 0}
