"""The features party answers as its OpenAPI document says, to valid and to invalid calls of every role."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.api_fuzz import PHASES, fuzz
from tests.support.features_api import Api, running
from tests.support.known_features import known_features
from tests.support.messages import Sender

pytestmark = pytest.mark.extended


@pytest.fixture
def api(tmp_path: Path) -> Iterator[tuple[Api, Sender]]:
    sender = Sender()
    with running(tmp_path, sender, labels_urls=("http://127.0.0.1:9",)) as started:  # nothing else is called
        yield started, sender


@pytest.mark.parametrize(("role", "examples"), [("trainer", 2), ("auditor", 1)])
def test_every_call_is_answered_as_documented(
    role: str, examples: int, api: tuple[Api, Sender], tmp_path: Path
) -> None:
    started, sender = api
    known = known_features(started, sender, tmp_path)
    key = started.services.apikeys.create(role)[1]
    phases = PHASES if role == "trainer" else ("fuzzing",)
    found = fuzz(started.app.app, key, known, seed=20, examples=examples, phases=phases)
    assert not found.told, found.told
    assert found.cases > (400 if role == "trainer" else 20)
    documented = started.app.get("/openapi.json").json()["paths"]
    assert len(found.operations) == sum(len(methods) for methods in documented.values())
