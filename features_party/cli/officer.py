"""`budget`: how much ε we hold of each population. `statement`: one printable page about a message."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from features_party.cli.app import LabelsKey, app, public_key, services
from label_dp.cli.output import echo, emit, table
from label_dp.cli.panels import OFFICER
from label_dp.cli.party_commands import Force, Json
from label_dp.errors import NotFound
from label_dp.pages.verifier import write_statement
from label_dp.store.output_files import writable


@app.command(rich_help_panel=OFFICER)
def budget(
    population: Annotated[str | None, typer.Option(help="Only this population (name or id).")] = None,
    as_json: Json = False,
) -> None:
    """ε that we received, by population, from our own audit store; beside it what the labels party states."""
    from features_party.receive.population_accounts import received

    party = services(existing=True)
    entries = party.database.read("budget", lambda c: received(party.audit.scan(c)))
    if population is not None:
        entries = [entry for entry in entries if population in (entry["population"], entry["name"])]
        if not entries:
            raise NotFound(f"No message or answer of a population '{population}' was accepted here.")
    columns = ["population", "label", "messages", "answers", "batches", "ε per example", "stated spent", "of lifetime"]
    keys = ("name", "label", "messages", "answers", "batches", "epsilon_per_example", "stated_epsilon_spent")
    rows = [[*(str(entry[key]) for key in keys), entry["stated_epsilon_lifetime"]] for entry in entries]
    if any(entry["epsilon_per_unit"] is not None for entry in entries):
        columns.insert(0, "ε per unit")
        rows = [[e["epsilon_per_unit"] or "", *row] for e, row in zip(entries, rows, strict=True)]
    emit(entries, as_json, lambda: table("ε received", columns, rows))


@app.command(rich_help_panel=OFFICER)
def statement(
    path: Annotated[Path, typer.Argument(metavar="MESSAGE", help="A message (.parquet) or its folder.")],
    out: Annotated[Path, typer.Option(help="Where the page goes (.html).")],
    labels_key: LabelsKey = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Verify a message and write its statement: what came, from whom, what ε means, what may be inferred."""
    from features_party.bootstrap import reader
    from features_party.receive.accepted import read_prior
    from label_dp.documents.bundle import Bundle, verify
    from label_dp.documents.statement import render_statement

    writable(out, force)
    settings, pinned = reader()
    message = verify(path, public_key(labels_key) or pinned.for_envelope(Bundle(path).envelope()), settings.name)
    prior = None if message.prior_path is None else read_prior(message.prior_path, message.manifest)
    page = render_statement(message.manifest, message.digest, prior)
    write_statement(page, out, force=force)
    emit({"release": message.manifest.id, "statement": str(out)}, as_json, lambda: echo(out))
