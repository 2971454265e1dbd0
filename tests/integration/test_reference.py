"""The reference for people names every call and command that there is, and no other; parameters are the schemas'."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

import features_party.cli
import labels_party.cli
from deploy import error_codes
from label_dp.schemas.reference import page
from tests.support.features_api import running
from tests.support.labels import LabelsParty
from tests.support.messages import Sender

pytestmark = pytest.mark.extended

GUIDES = Path(__file__).parents[2] / "deploy" / "guides"
REFERENCE = (GUIDES / "reference.md").read_text(encoding="utf-8")
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


@pytest.mark.parametrize("party", [labels_party.cli, features_party.cli], ids=["labels-party", "features-party"])
def test_it_names_every_command(party: Any) -> None:
    name = party.__name__.split(".")[0].replace("_", "-")
    text = REFERENCE.split(f"| `{name}` | purpose |")[1].split("\n\n")[0]
    listed = [word for line in text.splitlines()[2:] for word in re.findall(r"`([\w-]+)`", line.split(" | ")[0])]
    command: Any = typer.main.get_command(party.app)
    assert sorted(listed) == sorted(command.commands)


def test_parameters_are_those_of_the_schemas() -> None:
    written = (GUIDES / "parameters.md").read_text(encoding="utf-8")
    again = "write it again: .venv/bin/python -m label_dp.schemas.reference > deploy/guides/parameters.md"
    assert written == page(), again


def test_every_option_of_a_parameter_is_one_of_a_command() -> None:
    def options(command: Any) -> set[str]:
        own = {option for parameter in command.params for option in parameter.opts}
        return own.union(*map(options, getattr(command, "commands", {}).values()))

    known = set[str]().union(*(options(typer.main.get_command(p.app)) for p in (labels_party.cli, features_party.cli)))
    named = set(re.findall(r"^\| `\w+` \| `(--[\w-]+)`", page(), re.M))
    assert len(named) > 50
    assert named - known == set()


def test_codes_of_errors_are_those_of_the_classes_and_none_is_left_out() -> None:
    written = (GUIDES / "errors.md").read_text(encoding="utf-8")
    assert written == error_codes.page(), (
        "deploy/error_codes.py writes it again: .venv/bin/python -m deploy.error_codes > deploy/guides/errors.md"
    )
    listed = set(re.findall(r"^\| `([a-z0-9-]+)`", written, re.M))
    assert {kind.code for kind in error_codes.kinds()} <= listed
    # also of modules that neither service imports, and of bodies that no class stands behind
    declared = re.compile(r'^    code = "([a-z-]+)"|http_problem\(\d+, "([a-z-]+)"', re.M)
    for room in ("labels_party", "features_party", "shared"):
        for path in (GUIDES.parents[1] / room).rglob("*.py"):
            found = declared.findall(path.read_text(encoding="utf-8"))
            assert {code or other for code, other in found} <= listed, path


def summaries(openapi: dict[str, Any]) -> list[str]:
    return [operation["summary"] for calls in openapi["paths"].values() for operation in calls.values()]


def test_a_summary_of_a_call_is_a_sentence(party: LabelsParty, tmp_path: Path) -> None:
    found = summaries(party.client("owner").get("/openapi.json").json())
    (other := tmp_path / "features").mkdir()
    with running(other, Sender()) as api:
        found += summaries(api.trainer.get("/openapi.json").json())
    assert len(found) > 80
    assert [text for text in found if not (text.endswith(".") and " " in text and text[0].isupper())] == []
