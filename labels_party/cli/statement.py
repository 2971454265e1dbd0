"""`statement`: one printable page about a release."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from label_dp.cli.output import echo, emit
from label_dp.cli.panels import OFFICER
from label_dp.cli.party_commands import Force, Json
from label_dp.store.output_files import replacing, writable
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
    with replacing(out, force) as path:
        path.write_text(page, "utf-8")
    emit({"release": release, "statement": str(out)}, as_json, lambda: echo(out))
