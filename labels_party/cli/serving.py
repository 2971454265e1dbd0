"""`serve`: the REST service and its worker."""

from __future__ import annotations

from typing import Annotated

import typer

from labels_party.cli.app import app, services


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; default from LABELS_PARTY_HOST.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; default from LABELS_PARTY_PORT (8001).")] = None,
) -> None:
    """Run the REST service and its background worker."""
    from labels_party.api.app import create_app
    from shared.service.serving import serve as listen

    party = services()
    typer.echo(f"labels party: home {party.home.path}, public key {party.home.public_key_path}", err=True)
    chosen = port if port is not None else party.settings.port
    listen(create_app(party), host or party.settings.host, chosen, "labels party", party.settings)
