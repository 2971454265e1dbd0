"""A new filter of a list is three files, from REST, command and page to the rows.

`shared/label_dp/schemas/filters.py`: a member.
`labels_party/work/holdings.py`: the column that it compares.
`labels_party/pages/templates/given.html.jinja`: a field of the form.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import Field

from label_dp.cli.commands import command
from label_dp.schemas.filters import GivenFilter
from labels_party.api import app as rest
from labels_party.api import holdings as calls
from labels_party.cli import app, lists
from labels_party.pages import overview as pages
from labels_party.pages import site
from labels_party.storage.tables import populations
from labels_party.work import holdings
from tests.architecture.doors import anew, grown, shell
from tests.support import shared_routes
from tests.support.labels import LabelsParty, label_table
from tests.support.pages import signed_in


@pytest.fixture(autouse=True)
def label(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The member and its column, for the length of a test; and what is made once, when it is imported."""
    told = Field(default=None, max_length=200, description="Only of populations of this label.")
    with grown(GivenFilter, "label", str | None, told):
        monkeypatch.setitem(holdings.SAME, "label", populations.c.label)
        monkeypatch.setattr(rest, "holdings", anew(calls))
        monkeypatch.setattr(site, "overview", anew(pages))
        monkeypatch.setattr(app, "registered_commands", [*app.registered_commands])
        command(app)(lists.releases)
        monkeypatch.setattr(shared_routes, "_known", {})
        yield


def test_one_filter_reaches_every_door(tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "home", worker=False) as party:
        batches = {label: party.sealed_batch(label_table(40), label, label=label) for label in ("sales", "visits")}
        works = {label: party.release(batch) for label, batch in batches.items()}
        client = party.client()

        def listed(**query: str) -> set[str]:
            return {row["id"] for row in client.get("/v1/given", params=query).json()}

        assert listed() == set(works.values())
        assert listed(label="visits") == {works["visits"]}
        assert listed(label="none") == set()
        assert client.get("/v1/given", params={"label": "x" * 201}).json()["code"] == "invalid-request"
        operation = client.get("/openapi.json").json()["paths"]["/v1/given"]["get"]
        assert "label" in {parameter["name"] for parameter in operation["parameters"]}
        looker = signed_in(client)
        page = looker.get("/given?label=visits").text
        assert (works["visits"] in page, works["sales"] in page) == (True, False)
        printed = shell(party, tmp_path, "releases", "--label", "sales", "--json")
        assert {row["id"] for row in json.loads(printed)} == {works["sales"]}
