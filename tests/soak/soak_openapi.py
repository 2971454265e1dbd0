"""Schemathesis for as long as it is given, over both OpenAPI documents, as the role that may do most."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.conftest import Scale
from tests.soak.report import Report
from tests.support.api_fuzz import Fuzzed, fuzz
from tests.support.features_api import running
from tests.support.known_features import known_features
from tests.support.known_labels import known_labels
from tests.support.labels import LabelsParty
from tests.support.messages import Sender

EXAMPLES = 2_000  # per operation and phase; time usually ends before
ROUND = 60.0  # seconds on one database, so that what earlier calls made does not slow later ones


def _rounds(scale: Scale) -> list[tuple[int, int]]:
    """(seed, seconds) of each round."""
    count = max(1, round(scale.seconds / ROUND))
    return [(scale.seed + i, max(5, int(scale.seconds / count))) for i in range(count)]


def _judge(found: list[Fuzzed], report: Report) -> None:
    cases = sum(f.cases for f in found)
    told = "\n\n".join(f.told for f in found if f.told)
    failures = sum(len(f.failures) + len(f.errors) for f in found)
    operations = len(set().union(*(f.operations for f in found)))
    unexpected = sum(count for f in found for status, count in f.statuses.items() if status == 500)
    report.row(cases, cases - failures, f"{operations} operations, all checks; unexpected 5xx: {unexpected}")
    assert not told, told


@pytest.mark.parametrize("role", ["owner", "features"])
def test_labels_party_as_documented(role: str, scale: Scale, report: Report, tmp_path: Path) -> None:
    found = []
    for seed, seconds in _rounds(scale):
        with LabelsParty(tmp_path / f"home-{seed}", worker=False) as party:
            known, client = known_labels(party), party.client(role)
            key = client.headers["Authorization"].removeprefix("Bearer ")
            found.append(fuzz(client.app, key, known, seed=seed, examples=EXAMPLES, seconds=seconds))
    _judge(found, report)


def test_features_party_as_documented(scale: Scale, report: Report, tmp_path: Path) -> None:
    found = []
    for seed, seconds in _rounds(scale):
        folder, sender = tmp_path / f"round-{seed}", Sender()
        folder.mkdir()
        with running(folder, sender, labels_urls=("http://127.0.0.1:9",)) as api:
            known = known_features(api, sender, folder)
            key = api.services.apikeys.create("trainer")[1]
            found.append(fuzz(api.app.app, key, known, seed=seed, examples=EXAMPLES, seconds=seconds))
    _judge(found, report)
