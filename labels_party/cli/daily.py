"""`purge`: the end of a batch's labels."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from label_dp.cli.output import confirm, echo, emit
from label_dp.cli.panels import ADMINISTRATION
from label_dp.cli.party_commands import Json, Yes
from label_dp.errors import InvalidInput
from labels_party.cli.app import app, services


@app.command(rich_help_panel=ADMINISTRATION)
def purge(
    batch: Annotated[str | None, typer.Argument(help="Id of a sealed batch.")] = None,
    due: Annotated[
        bool, typer.Option("--due", help="Purge every batch whose retention is over; `serve` does so by itself.")
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete the labels of a batch for good; messages, ledger and the digests of its ids stay."""
    if (batch is None) != due:
        raise InvalidInput("Name one batch, or say --due.")
    party = services(existing=True)
    result: dict[str, Any]
    which = f"batch {batch}" if batch is not None else "every batch whose retention is over"
    confirm(f"The labels of {which} are deleted.", yes)
    if batch is not None:
        _, result = party.retention.purge(batch, "command line")
        emit(result, as_json, lambda: echo(f"{batch}: labels purged at {result['purged']}"))
    else:
        result = {"purged": party.retention.run_due()}
        emit(result, as_json, lambda: echo(f"{result['purged']} batches purged"))
