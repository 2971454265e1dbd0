"""`keygen`, `pin-key` and `apikey`: our key, the keys we trust, and keys for the REST interface."""

from __future__ import annotations

from typing import Annotated

import typer

from features_party.cli.app import FilePath, Json, apikey, app, services
from shared.service import apikey_commands
from shared.service.cli import emit


@app.command()
def keygen(as_json: Json = False) -> None:
    """Make the key that signs receipts and audit exports (once) and show where its public half is; give that file to
    the labels party."""
    party = services()
    path = party.home.path / "keys" / "signing.pub"
    data = {"key_id": party.home.own_key().public.id, "public_key": str(path)}
    emit(data, as_json, lambda: typer.echo(f"{data['key_id']}\n{data['public_key']}"))


@app.command("pin-key")
def pin_key(
    public_key: Annotated[FilePath, typer.Argument(metavar="PUB", help="The labels party's keys/signing.pub.")],
    as_json: Json = False,
) -> None:
    """Trust a labels party's key: its messages are then accepted without naming the key."""
    key = services().pinned.pin(public_key)
    emit({"key_id": key.id}, as_json, lambda: typer.echo(f"pinned {key.id}"))


@apikey.command("create")
def apikey_create(
    role: Annotated[str, typer.Option(help="trainer or auditor.")],
    expires: apikey_commands.Expires = None,
    as_json: Json = False,
) -> None:
    """Make a key; it is shown once, alone on stdout."""
    apikey_commands.create(services().apikeys, role, None, expires, as_json)


@apikey.command("list")
def apikey_list(as_json: Json = False) -> None:
    """Show ids, roles and when each was last used; the keys themselves are not stored."""
    apikey_commands.show(services(existing=True).apikeys, as_json)


@apikey.command("revoke")
def apikey_revoke(key_id: apikey_commands.KeyId, as_json: Json = False) -> None:
    """Make a key useless from now on."""
    apikey_commands.revoke(services(existing=True).apikeys, key_id, as_json)
