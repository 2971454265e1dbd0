"""`keygen`, `pin-key` and `apikey`: our key, the keys we trust, and keys for the REST interface."""

from __future__ import annotations

from typing import Annotated

import typer

from features_party.cli.app import FilePath, Json, apikey, app, services
from shared.service.cli import emit, table


@app.command()
def keygen(as_json: Json = False) -> None:
    """Make the key that signs audit exports (once) and show where its public half is."""
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
    as_json: Json = False,
) -> None:
    """Make a key; it is shown once."""
    key_id, secret = services().apikeys.create(role)
    emit({"id": key_id, "role": role, "key": secret}, as_json, lambda: typer.echo(secret))


@apikey.command("list")
def apikey_list(as_json: Json = False) -> None:
    """Show ids and roles; the keys themselves are not stored."""
    keys = services(existing=True).apikeys.list()
    columns = ["id", "role", "created", "revoked"]
    emit(keys, as_json, lambda: table("API keys", columns, [[str(k[c] or "") for c in columns] for k in keys]))


@apikey.command("revoke")
def apikey_revoke(key_id: Annotated[str, typer.Argument(help="Id of the key.")], as_json: Json = False) -> None:
    """Make a key useless from now on."""
    services(existing=True).apikeys.revoke(key_id)
    emit({"revoked": key_id}, as_json, lambda: typer.echo(f"revoked {key_id}"))
