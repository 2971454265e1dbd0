"""`statement`: one printable page about a release. `report`: one signed page about an audience. `disclose`: the signed
pack of a population for outsiders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from label_dp.cli.output import echo, emit
from label_dp.cli.panels import OFFICER
from label_dp.cli.party_commands import Force, Json
from label_dp.pages.verifier import write_statement
from label_dp.store.output_files import writable
from labels_party.cli.app import app, services
from labels_party.cli.names import told_apart


@app.command(rich_help_panel=OFFICER)
def statement(
    release: Annotated[str, typer.Argument(help="Id of a published release.")],
    out: Annotated[Path, typer.Option(help="Where the page goes (.html).")],
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a release's statement: what left, to whom, when, ε in words and numbers, what happened since."""
    writable(out, force)
    party = services(existing=True)
    with told_apart(party, release):
        page = party.statements.page(release, since=True)
    write_statement(page, out, force=force)
    emit({"release": release, "statement": str(out)}, as_json, lambda: echo(out))


@app.command(rich_help_panel=OFFICER)
def report(
    audience: Annotated[str, typer.Option(help="Whom the report is about.")],
    out: Annotated[Path, typer.Option(help="Where the page goes (.html); its signature lies beside it.")],
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write what an audience has, at which ε, as one signed page for an auditor; `audit verify` checks it."""
    from labels_party.pages.report import report as made

    facts = made(services(existing=True), audience, out, force=force)
    emit(facts, as_json, lambda: echo(out))


@app.command(rich_help_panel=OFFICER)
def disclose(
    population: Annotated[str, typer.Option(help="Whose ledger and documents are disclosed.")],
    out: Annotated[Path, typer.Option(help="Folder for the pack; it is made.")],
    curator: Annotated[str, typer.Option(help="Organisation that publishes, as the registry shall name it.")] = (
        "Labels party, name not stated"
    ),
    region: Annotated[str, typer.Option(help="Region that the data describe, or whose laws apply.")] = "Not stated",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a population's pack: an entry for the public registry of DP deployments, NIST SP 800-226 as a filled table,
    an annex for a data protection impact assessment. Each has its signature beside it; `audit verify` checks it."""
    from labels_party.pages.disclosure import disclose as written_pack

    pack = written_pack(services(existing=True), population, out, curator=curator, region=region, force=force)
    emit(pack, as_json, lambda: echo("\n".join(map(str, sorted(out.iterdir())))))
