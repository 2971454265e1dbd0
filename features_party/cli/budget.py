"""`budget`: how much ε we hold of each population."""

from __future__ import annotations

from typing import Annotated

import typer

from features_party.cli.app import app, services
from label_dp.cli.output import emit, table
from label_dp.cli.panels import OFFICER
from label_dp.cli.party_commands import Json
from label_dp.errors import NotFound


@app.command(rich_help_panel=OFFICER)
def budget(
    population: Annotated[str | None, typer.Option(help="Only this population (name or id).")] = None,
    as_json: Json = False,
) -> None:
    """ε that we received, by population, from our own audit store; beside it what the labels party states."""
    from features_party.receive.population_accounts import received

    party = services(existing=True)
    found = party.database.read("budget", lambda c: received(party.audit.scan(c)))
    if population is not None:
        found = [entry for entry in found if population in (entry["population"], entry["name"])]
        if not found:
            raise NotFound(f"No message or answer of a population '{population}' was accepted here.")
    columns = ["population", "label", "messages", "answers", "batches", "ε per example", "stated spent", "of lifetime"]
    keys = ("name", "label", "messages", "answers", "batches", "epsilon_per_example", "stated_epsilon_spent")
    rows = [[*(str(entry[key]) for key in keys), entry["stated_epsilon_lifetime"]] for entry in found]
    if any(entry["epsilon_per_unit"] is not None for entry in found):
        columns.insert(0, "ε per unit")
        rows = [[e["epsilon_per_unit"] or "", *row] for e, row in zip(found, rows, strict=True)]
    emit(found, as_json, lambda: table("ε received", columns, rows))
