"""`keygen` and `apikey`: the signing key, and keys for the REST interface."""

from __future__ import annotations

from typing import Annotated

import typer

from labels_party.cli.app import Json, apikey, app, services
from shared.service.cli import emit, table


@app.command()
def keygen(as_json: Json = False) -> None:
    """Make the signing key (once) and show where its public half is; give that file to the features party."""
    party = services()
    data = {"key_id": party.key.public.id, "public_key": str(party.home.public_key_path)}
    emit(data, as_json, lambda: typer.echo(f"{data['key_id']}\n{data['public_key']}"))


@apikey.command("create")
def apikey_create(
    role: Annotated[str, typer.Option(help="owner, ingest, features or auditor.")],
    audience: Annotated[str | None, typer.Option(help="For role features: whose messages the key may read.")] = None,
    as_json: Json = False,
) -> None:
    """Make a key; it is shown once."""
    key_id, secret = services().apikeys.create(role, audience or ("features-party" if role == "features" else None))
    emit({"id": key_id, "role": role, "key": secret}, as_json, lambda: typer.echo(secret))


@apikey.command("list")
def apikey_list(as_json: Json = False) -> None:
    """Show ids and roles; the keys themselves are not stored."""
    keys = services(existing=True).apikeys.list()
    columns = ["id", "role", "audience", "created", "revoked"]
    emit(keys, as_json, lambda: table("API keys", columns, [[str(k[c] or "") for c in columns] for k in keys]))


@apikey.command("revoke")
def apikey_revoke(key_id: Annotated[str, typer.Argument(help="Id of the key.")]) -> None:
    """Make a key useless from now on."""
    services(existing=True).apikeys.revoke(key_id)
