"""`report`: one signed page about an audience."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from label_dp.cli.output import echo, emit
from label_dp.cli.panels import OFFICER
from label_dp.cli.party_commands import Force, Json
from labels_party.cli.app import app, services


@app.command(rich_help_panel=OFFICER)
def report(
    audience: Annotated[str, typer.Option(help="Whom the report is about.")],
    out: Annotated[Path, typer.Option(help="Where the page goes (.html); its signature lies beside it.")],
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write what an audience has, at which ε, as one signed page for an auditor; `audit verify` checks it."""
    from labels_party.pages.report import report as made

    told = made(services(existing=True), audience, out, force=force)
    emit(told, as_json, lambda: echo(out))
