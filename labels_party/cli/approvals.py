"""`approve`, `decline` and `cancel`: decisions on releases and answers that wait or were not begun."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from label_dp.actors import COMMAND_LINE, person
from label_dp.cli.output import echo, emit
from label_dp.cli.panels import ADMINISTRATION, OFFICER
from label_dp.cli.party_commands import Json
from labels_party.cli.app import app, services

Name = Annotated[str, typer.Option("--as", help="Who decides; another name than that of who asked for it.")]
ReleaseId = Annotated[str, typer.Argument(help="Id of the release or answer.")]


def _shown(data: dict[str, Any], as_json: bool, text: str) -> None:
    emit(data, as_json, lambda: echo(text))


@app.command(rich_help_panel=OFFICER)
def approve(release: ReleaseId, name: Name, as_json: Json = False) -> None:
    """Let what waits in a four-eyes population be charged and drawn."""
    _, data = services(existing=True).decisions.approve(release, person(name))
    write = "message" if data["kind"] == "release" else "answer"
    told = f"{release} is charged ε {data['epsilon']['total']}. Write it: labels-party {write} {release} --out FILE"
    _shown(data, as_json, told)


@app.command(rich_help_panel=OFFICER)
def decline(
    release: ReleaseId,
    name: Name,
    reason: Annotated[str, typer.Option(help="One line for the audit store.")] = "",
    as_json: Json = False,
) -> None:
    """End what waits in a four-eyes population; nothing is charged."""
    _, data = services(existing=True).decisions.decline(release, person(name), reason)
    _shown(data, as_json, f"{release} is declined; nothing was charged.")


@app.command(rich_help_panel=ADMINISTRATION)
def cancel(release: ReleaseId, as_json: Json = False) -> None:
    """Take a release or answer back while no draw of it ever began; what was charged is returned."""
    _, data = services(existing=True).decisions.cancel(release, COMMAND_LINE)
    _shown(data, as_json, f"{release} is cancelled; its charge, if it had one, is returned.")
