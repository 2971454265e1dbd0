"""`population`: declare one before anything of it is charged; list them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from label_dp.cli.commands import command
from label_dp.cli.output import emit, say, table, warn
from label_dp.cli.party_commands import Json
from labels_party.cli.app import app, services

if TYPE_CHECKING:
    from label_dp.schemas.filters import PopulationFilter
    from label_dp.schemas.population import Population

population = typer.Typer(
    help="Populations: declare one, to plan for it before anything is charged; list them.", no_args_is_help=True
)
app.add_typer(population, name="population")


@command(population)
def create(*, rules: Population, as_json: Json = False) -> None:
    """Declare a population: label, public domain, audiences, lifetime ε. Its rules never change; nothing is charged."""
    from labels_party.files.inputs import population_of
    from labels_party.work.decisions import COMMAND_LINE

    party, wanted = services(), population_of(rules)
    others = party.database.read("population.others", lambda c: party.populations.other_labels(c, wanted))
    found = party.database.write("population.create", lambda c: party.populations.create(c, wanted, COMMAND_LINE))

    if others:
        warn(others)

    def human() -> None:
        say(f"{found.name}: declared. What its rules rule out for ever:")
        for sentence in found.ruled_out():
            say(sentence, indent=2)
        say(f"labels-party plan --population {found.name} --epsilon E --n N  shows what an ε would give.")

    emit(found.as_json(), as_json, human)


@command(population, "list")
def list_populations(population_filter: PopulationFilter, as_json: Json = False) -> None:
    """Every population, oldest first: its label, domain, lifetime ε and audiences."""
    party = services(existing=True)
    populations = party.database.read("population.list", lambda c: party.populations.list(c, population_filter))

    def human() -> None:
        if not populations:
            say("No population fits.")
            return
        rows = [[p.name, p.label, str(p.domain), str(p.lifetime), ", ".join(p.audiences)] for p in populations]
        table("Populations", ["population", "label", "domain", "lifetime ε", "audiences"], rows)

    emit([p.as_json() for p in populations], as_json, human)
