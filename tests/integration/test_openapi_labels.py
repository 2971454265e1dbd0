"""The labels party answers as its OpenAPI document says, to valid and to invalid calls of every role."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.api_fuzz import PHASES, fuzz
from tests.support.known_labels import known_labels
from tests.support.labels import LabelsParty

pytestmark = pytest.mark.extended


@pytest.mark.parametrize(("role", "examples"), [("owner", 1), ("features", 1), ("ingest", 1), ("auditor", 1)])
def test_every_call_is_answered_as_documented(role: str, examples: int, tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "home", worker=False) as party:  # without a worker no webhook is called
        known = known_labels(party)
        client = party.client(role)
        key = client.headers["Authorization"].removeprefix("Bearer ")
        phases = PHASES if role == "owner" else ("fuzzing",)
        found = fuzz(client.app, key, known, seed=20, examples=examples, phases=phases)
        assert not found.told, found.told
        documented = client.get("/openapi.json").json()["paths"]
        assert len(found.operations) == sum(len(methods) for methods in documented.values())
        assert not [status for status in found.statuses if status >= 500]
        if role == "owner":
            assert found.cases > 1000
            missed = found.operations - found.succeeded
            assert len(found.succeeded) > 0.6 * len(found.operations), missed
