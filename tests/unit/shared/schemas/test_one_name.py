"""One name for one thing: in REST, on the command line, in Python and in documents, or a written reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import labels_party.cli
from label_dp.companions.kinds.linear_model import LinearModel
from label_dp.companions.kinds.median import Median
from label_dp.companions.kinds.rectangle import Rectangle
from label_dp.domain import Domain
from label_dp.schemas.base import NO_OPTION, Ask, QueryAsk, option_of, word_of
from label_dp.schemas.calibration import Allowance, Calibration
from label_dp.schemas.events import EventRule
from label_dp.schemas.filters import BatchFilter, GivenFilter, PopulationFilter
from label_dp.schemas.plan import Plan
from label_dp.schemas.policy import Policy, PolicyAllowance, PolicyCeilings
from label_dp.schemas.population import Batch, People, Population, Schedule
from label_dp.schemas.predictor import Predictor, PredictorQuery
from label_dp.schemas.reference import table
from label_dp.schemas.release import Release
from label_dp.schemas.sums import GroupSums
from label_dp.schemas.training import Learning, Training
from label_dp.schemas.webhook import Webhook
from labels_party.companions.kinds.linear_model import LinearModelKind
from labels_party.companions.kinds.rectangle import RectangleKind
from labels_party.ledger.populations import declare
from tests.support.asked import calibration_wish, planned
from tests.support.labels import LabelsParty

# the command and the call of each
DOORS: dict[type[Ask], tuple[str, str]] = {
    Population: ("privatize", "POST /v1/populations"),
    People: ("people declare", "POST /v1/people"),
    Batch: ("privatize", "POST /v1/populations/{population}/batches"),
    Schedule: ("", "PATCH /v1/batches/{batch}"),
    Release: ("privatize", "POST /v1/batches/{batch}/releases"),
    Calibration: ("calibrate", "POST /v1/batches/{batch}/calibrations"),
    Allowance: ("allow-calibrations", "PUT /v1/batches/{batch}/calibration-allowance"),
    Median: ("median", "POST /v1/batches/{batch}/medians"),
    Rectangle: ("rectangle", "POST /v1/batches/{batch}/rectangles"),
    LinearModel: ("linear-model", "POST /v1/batches/{batch}/linear-models"),
    GroupSums: ("sums", "POST /v1/batches/{batch}/sums"),
    Predictor: ("predictor create", "POST /v1/predictors"),
    PredictorQuery: ("predict", "POST /v1/predictors/{predictor}/predict"),
    Webhook: ("webhook create", "POST /v1/webhooks"),
    Plan: ("plan", "GET /v1/populations/{population}/plan"),
    BatchFilter: ("batches", "GET /v1/batches"),
    PopulationFilter: ("population list", "GET /v1/populations"),
}
# of the features party; shared filter; part of Population; a file that `apply` reads
ELSEWHERE = (Learning, Training, GivenFilter, EventRule, Policy, PolicyCeilings, PolicyAllowance)
# members that a document names otherwise, and why
IN_DOCUMENTS: dict[type[Ask], dict[str, str]] = {
    Rectangle: {"bits": "`levels`, which a reader computes with, are 2^bits - 1"},
    LinearModel: {},
    Calibration: {"option": "`options` are an object there, and texts in a query"},
    Population: {
        "name": "beside the rules",
        "unit_column": "of the object `unit`",
        "max_examples_per_unit": "of the object `unit`",
    },
}
COSTS = {"epsilon", "delta", "additional_release"}  # of the ε split of every document


def _schemas(base: type[Ask] = Ask) -> Iterator[type[Ask]]:
    for schema in base.__subclasses__():
        if schema.__module__.startswith(("label_dp.schemas.", "label_dp.companions.kinds.")) and schema.model_fields:
            yield schema
        yield from _schemas(schema)


def _options(name: str) -> set[str]:
    command: Any = typer.main.get_command(labels_party.cli.app)
    for part in name.split():
        command = command.commands[part]
    return {option for parameter in command.params for option in parameter.opts}


def test_every_schema_is_asked_for_somewhere() -> None:
    inside = {"LossMatrix", "NumberFeature", "CategoryFeature"}
    found = {schema for schema in _schemas() if schema.__name__ not in inside}
    missing = sorted(schema.__name__ for schema in found - {*DOORS, *ELSEWHERE})
    assert not missing, f"name the command and the call of {missing} in DOORS of this file"
    assert found == {*DOORS, *ELSEWHERE}


@pytest.mark.parametrize("schema", [*DOORS, *ELSEWHERE], ids=lambda schema: schema.__name__)
def test_an_option_is_its_member_or_says_why_not(schema: type[Ask]) -> None:
    for name, field in schema.model_fields.items():
        word = word_of(field)
        assert field.description, f"{schema.__name__}.{name} has no description"
        same = option_of(name, field) == "--" + name.replace("_", "-")
        assert same != bool(word.why), f"{schema.__name__}.{name}: another name needs a reason, and only another one"


@pytest.mark.parametrize("schema", DOORS, ids=lambda schema: schema.__name__)
def test_the_command_has_every_option(schema: type[Ask]) -> None:
    command, _ = DOORS[schema]
    wanted = {option_of(name, field) for name, field in schema.model_fields.items()} - {NO_OPTION}
    assert wanted <= (_options(command) if command else set())


def test_a_call_has_every_member(tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "home", worker=False) as party:
        document = party.client().get("/openapi.json").json()
    for schema, (_, call) in DOORS.items():
        method, path = call.split()
        operation = document["paths"][path][method.lower()]
        if issubclass(schema, QueryAsk):
            members = {parameter["name"] for parameter in operation["parameters"]}
        else:
            text = str(operation["requestBody"])
            component = text.split("#/components/schemas/")[1].split("'")[0]
            members = set(document["components"]["schemas"][component]["properties"])
        assert set(schema.model_fields) <= members, call


def test_a_document_has_the_members_that_were_asked_for() -> None:
    domain, feature = Domain.parse("0:10"), {"name": "x", "range": [0, 9]}
    shop = declare(Population(name="shop", label="y", domain="0:10", lifetime_epsilon="3"))
    said: dict[type[Ask], set[str]] = {
        Rectangle: set(planned(RectangleKind, domain, 20_000, epsilon="1", threshold=5, features=[feature]).parameters),
        LinearModel: set(planned(LinearModelKind, domain, 20_000, epsilon="1", features=[feature]).parameters),
        Calibration: set(calibration_wish(epsilon="1", shape="grid", scores_2="float32").parameters),
        Population: set(shop.rules()),
    }
    for schema, members in said.items():
        missing = set(schema.model_fields) - members - (set() if schema is Population else COSTS)
        assert missing == set(IN_DOCUMENTS[schema]), schema.__name__


def test_the_reference_has_a_row_for_each_member() -> None:
    for schema in (*DOORS, *ELSEWHERE):
        lines = table(schema).splitlines()
        assert len(lines) == 2 + len(schema.model_fields)
        assert {line.count(" | ") for line in lines} == {4}
    rows = {line.split(" | ")[0].strip("| `"): line for line in table(Release).splitlines()[2:]}
    assert rows["epsilon"].startswith("| `epsilon` | `--epsilon` | decimal number, as text or as number | needed | ")
    assert "`project` or `clip` | `project`" in rows["prior_method"]
    assert "whole number (at least 1, at most 32) | `16`" in table(Rectangle)
    assert "The option has another name: " in table(Population)
    assert "| none | " in table(Batch)
