"""`set-aside`: uploads of ingest keys that wait for the owner's decision."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from label_dp.actors import COMMAND_LINE
from label_dp.cli.output import echo, emit, table
from label_dp.cli.panels import ADMINISTRATION
from label_dp.cli.party_commands import Json
from label_dp.errors import InvalidInput
from labels_party.cli.app import app, services

set_aside = typer.Typer(
    help="Uploads of ingest keys with an id that one before had; their batch does not seal before you decided.",
    no_args_is_help=True,
)
app.add_typer(set_aside, name="set-aside", rich_help_panel=ADMINISTRATION)
UploadId = Annotated[
    list[str],
    typer.Argument(metavar="[BATCH] UPLOAD", help="Id of the upload, as `set-aside list` shows it; its batch before."),
]


@set_aside.command("list")
def list_(
    batch: Annotated[
        str | None,
        typer.Argument(
            metavar="[BATCH]", help="Id of a batch, of which decided uploads are shown too; default: all that wait."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show who sent what and when, and some ids that have a record. A `repeat` of what its sender sent before needs no
    decision."""
    aside = services(existing=True).set_aside
    batches = aside.waiting() if batch is None else [batch]
    found = [u for b in batches for u in aside.listed(b) if batch is not None or u["decision"] is None]

    def human() -> None:
        rows = []
        for u in found:
            had = ", ".join(u["examples"][:3]) + ("…" if len(u["examples"]) > 3 else "")
            sent_by, decision = u["sent_by_name"] or u["sent_by"], u["decision"] or "waits"
            rows.append([u["id"], u["batch"], sent_by, u["received"], f"{u['rows']:,}", decision, had])
        columns = ["id", "batch", "sent by", "received", "rows", "decision", "have a record"]
        table("Uploads set aside", columns, rows)

    emit(found, as_json, human)


@set_aside.command()
def drop(upload: UploadId, as_json: Json = False) -> None:
    """Nothing of the upload counts, ever."""
    _decide(upload, "drop", as_json, "nothing of it counts")


@set_aside.command()
def replace(upload: UploadId, as_json: Json = False) -> None:
    """The upload counts as if it came now, in place of what its ids had before."""
    _decide(upload, "replace", as_json, "it counts in place of what its ids had before")


def _decide(names: list[str], decision: str, as_json: bool, then: str) -> None:

    if len(names) > 2:
        raise InvalidInput("Name one upload, or its batch and it.")
    aside, upload = services(existing=True).set_aside, names[-1]
    batch = names[0] if len(names) == 2 else aside.batch_of(upload)
    data: dict[str, Any]
    _, data = aside.decide(batch, upload, decision, COMMAND_LINE)
    emit(data, as_json, lambda: echo(f"{upload} ({data['rows']:,} rows): {then}."))
