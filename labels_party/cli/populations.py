"""`population`: declare one before anything of it is charged; list them. `people`: one lifetime ε over several.
`apply`: an organisation's policy, which holds for all of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from label_dp.actors import COMMAND_LINE, person
from label_dp.cli.commands import command
from label_dp.cli.output import emit, say, table, warn
from label_dp.cli.panels import OFFICER
from label_dp.cli.party_commands import Json
from labels_party.cli.app import app, services

if TYPE_CHECKING:
    from label_dp.schemas.filters import PopulationFilter
    from label_dp.schemas.population import People, Population
    from label_dp.schemas.replies import PeopleBudgetOut

population = typer.Typer(
    help="Populations: declare one, to plan for it before anything is charged; list them.", no_args_is_help=True
)
app.add_typer(population, name="population")


@command(population)
def create(*, rules: Population, as_json: Json = False) -> None:
    """Declare a population: label, public domain, audiences, lifetime ε. Its rules never change; nothing is charged."""
    from labels_party.files.inputs import population_of

    party, wanted = services(), population_of(rules)
    others = party.database.read("population.others", lambda c: party.populations.new_beside(c, wanted))
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


people = typer.Typer(
    help="Bodies of people: one lifetime ε of a person over all label columns (populations) that name the body.",
    no_args_is_help=True,
)
app.add_typer(people, name="people", rich_help_panel=OFFICER)


@command(people)
def declare(*, rules: People, as_json: Json = False) -> None:
    """Declare a body of people and its lifetime ε, before the populations that name it (--people). It never changes."""
    from labels_party.ledger.people import declaration

    party, details = services(), declaration(rules)
    body = party.database.write("people.create", lambda c: party.ledger.people.declare(c, details, COMMAND_LINE))
    emit(body, as_json, lambda: say(f"{body['name']}: declared, lifetime ε {body['lifetime_epsilon']} of a person."))


@command(people, "list")
def list_bodies(as_json: Json = False) -> None:
    """Every body of people, oldest first."""
    party = services(existing=True)
    bodies = party.database.read("people.list", party.ledger.people.list)

    def human() -> None:
        rows = [[p["name"], p["unit_column"] or "example", p["lifetime_epsilon"], p["lifetime_delta"]] for p in bodies]
        table("Bodies of people", ["people", "a person is", "lifetime ε", "lifetime δ"], rows)

    emit(bodies, as_json, human)


@command(people)
def show(name: str, as_json: Json = False) -> None:
    """What a person of a body has spent at most over all label columns, and what is left."""
    party = services(existing=True)
    budget: PeopleBudgetOut = party.database.read("people.budget", lambda c: party.ledger.people.report(c, name))

    def human() -> None:
        person, delta = budget["person"], ""
        if budget["delta_lifetime"] != "0":
            delta = f" Of its δ {budget['delta_lifetime']} it has spent {budget['delta_spent_at_most']}."
        say(
            f"{name}: one {person} has spent ε {budget['epsilon_spent_at_most']} at most over all label columns, of "
            f"{budget['epsilon_lifetime']}; {budget['epsilon_left']} is left.{delta}"
        )
        columns = ("name", "label", "epsilon_per_example_at_most", "examples_per_person", "epsilon_spent_at_most")
        rows = [[str(row[column]) for column in columns] for row in budget["populations"]]
        heads = ["population", "label", "ε of an example", "examples", f"ε of one {person}"]
        table("Its label columns, each at most", heads, rows)

    emit(budget, as_json, human)


@app.command("apply", rich_help_panel=OFFICER)
def apply_policy(
    policy: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="The policy: TOML, reviewed like code; without one, what is in force."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would change.")] = False,
    name: Annotated[str | None, typer.Option("--as", help="Who applies it; needed to loosen a ceiling.")] = None,
    as_json: Json = False,
) -> None:
    """Hold every charge to an organisation's ceilings, and declare its bodies, populations and allowances.

    No owner's key lifts a ceiling. A looser one takes two people who apply the same file, and stands in the audit store
    for ever. Nothing that was released changes.
    """
    from labels_party.files.policy import apply, in_force, read_policy

    if policy is None:
        facts = in_force(services(existing=True))
        emit(facts, as_json, lambda: say(str(facts["sentence"])))
        return
    steps = apply(services(), read_policy(policy), COMMAND_LINE if name is None else person(name), dry_run)
    marks = {"same": "as it is: ", "change": "would be: " if dry_run else "done: ", "waits": "waits: "}
    rows = [{"state": step.state, "what": step.what} for step in steps]

    def human() -> None:
        for step in steps:
            say(marks[step.state] + step.what, indent=2)

    emit(rows, as_json, human)
