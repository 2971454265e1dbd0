"""`serve`: the REST interface as a process."""

from __future__ import annotations

from typing import Annotated

import typer

from features_party.cli.app import app, services


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; default from FEATURES_PARTY_HOST.")] = None,
    port: Annotated[int | None, typer.Option(help="Port; default from FEATURES_PARTY_PORT (8002).")] = None,
) -> None:
    """Run the REST service and its background worker."""
    from features_party.api.app import create_app
    from shared.service.serving import serve as listen

    party = services()
    typer.echo(f"features party '{party.settings.name}': home {party.home.path}", err=True)
    chosen = port if port is not None else party.settings.port
    listen(create_app(party), host or party.settings.host, chosen, "features party", party.settings)
