"""`keys`: the keys of this home that can be changed."""

from __future__ import annotations

from typing import Annotated

import typer

from label_dp.service.cli import ADMINISTRATION, emit
from label_dp.service.party_commands import Json
from labels_party.cli.app import app, services

keys = typer.Typer(help="Change the keys of this home.", no_args_is_help=True)
app.add_typer(keys, name="keys", rich_help_panel=ADMINISTRATION)


@keys.command("rotate-wrapping")
def rotate_wrapping(
    prepare: Annotated[
        bool, typer.Option("--prepare", help="Only make the next key, to copy it to replicas that share no folder.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Wrap the keys of all batches under a new key; no label is written again, and the old key is removed.

    Services may run. Older copies of the database then open no label any more.
    """
    party = services(existing=True)
    if prepare:
        number, count = party.keys.prepare(), 0
    else:
        number, count = party.keys.rotate()
    path = str(party.keys.wrapping.path(number))
    done = "made, and used for nothing yet" if prepare else f"wraps the keys of {count:,} batches"
    emit({"wrapping_key": path, "batches": count, "used": not prepare}, as_json, lambda: typer.echo(f"{path}: {done}"))
