"""`approve`, `decline` and `cancel`: decisions on releases that wait or were not begun."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from labels_party.cli.app import Json, app, services
from shared.service.cli import emit

Name = Annotated[str, typer.Option("--as", help="Who decides; another name than that of who asked for the release.")]
ReleaseId = Annotated[str, typer.Argument(help="Id of the release.")]


def _shown(data: dict[str, Any], as_json: bool, text: str) -> None:
    emit(data, as_json, lambda: typer.echo(text))


@app.command()
def approve(release: ReleaseId, name: Name, as_json: Json = False) -> None:
    """Let a waiting release of a four-eyes population be charged and drawn."""
    from labels_party.release.approvals import person

    _, data = services(existing=True).approvals.approve(release, person(name))
    told = f"{release} is charged ε {data['epsilon']['total']}. Its message: labels-party message {release} --out FILE"
    _shown(data, as_json, told)


@app.command()
def decline(
    release: ReleaseId,
    name: Name,
    reason: Annotated[str, typer.Option(help="One line for the audit store.")] = "",
    as_json: Json = False,
) -> None:
    """End a waiting release of a four-eyes population; nothing is charged."""
    from labels_party.release.approvals import person

    _, data = services(existing=True).approvals.decline(release, person(name), reason)
    _shown(data, as_json, f"{release} is declined; nothing was charged.")


@app.command()
def cancel(release: ReleaseId, as_json: Json = False) -> None:
    """Take a release back while no draw of it ever began; what was charged is returned."""
    from labels_party.release.approvals import COMMAND_LINE

    _, data = services(existing=True).approvals.cancel(release, COMMAND_LINE)
    _shown(data, as_json, f"{release} is cancelled; its charge, if it had one, is returned.")
