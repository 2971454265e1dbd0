"""The reference for people names every call that the two services have, and no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.support.features_api import running
from tests.support.labels import LabelsParty
from tests.support.messages import Sender

REFERENCE = (Path(__file__).parents[2] / "deploy" / "guides" / "reference.md").read_text(encoding="utf-8")
EVERYWHERE = {"/healthz", "/readyz", "/metrics"}


def named(section: str) -> set[str]:
    """Paths in the first column of a section's table."""
    text = REFERENCE.split(f"## Calls of the {section} party")[1].split("\n## ")[0]
    paths: set[str] = set()
    for line in text.splitlines():
        if line.startswith("| `"):
            paths |= set(re.findall(r"(/[\w{}./-]+)", line.split(" | ")[0]))
    return paths


def documented(openapi: dict[str, Any]) -> set[str]:
    return {path.removeprefix("/v1") for path in openapi["paths"]} - EVERYWHERE


def test_it_names_every_call_of_the_labels_party(party: LabelsParty) -> None:
    assert named("labels") == documented(party.client("owner").get("/openapi.json").json())


def test_it_names_every_call_of_the_features_party(tmp_path: Path) -> None:
    with running(tmp_path, Sender()) as api:
        assert named("features") == documented(api.trainer.get("/openapi.json").json())
