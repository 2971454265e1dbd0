"""`keygen`, `pin-key` and `apikey`: our key, the keys we trust, and keys for the REST interface."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from features_party.cli.app import apikey, app, services
from label_dp.service.cli import ADMINISTRATION, emit
from label_dp.service.party_commands import (
    Expires,
    Json,
    KeyName,
    add_apikey_list_and_revoke,
    create_apikey,
    show_own_key,
)


@app.command()
def keygen(as_json: Json = False) -> None:
    """Make the key that signs receipts and audit exports (once) and show where its public half is; give that file to
    the labels party."""
    party = services()
    show_own_key(party.home.own_key().public.id, party.home.public_key, as_json)


@app.command("pin-key", rich_help_panel=ADMINISTRATION)
def pin_key(
    public_key: Annotated[Path, typer.Argument(metavar="PUB", help="The labels party's keys/signing.pub.")],
    as_json: Json = False,
) -> None:
    """Trust a labels party's key: its messages are then accepted without naming the key."""
    key = services().pinned.pin(public_key)
    emit({"key_id": key.id}, as_json, lambda: typer.echo(f"pinned {key.id}"))


@apikey.command("create")
def apikey_create(
    role: Annotated[str, typer.Option(help="trainer or auditor.")],
    name: KeyName = None,
    expires: Expires = None,
    as_json: Json = False,
) -> None:
    """Make a key; it is shown once, alone on stdout."""
    create_apikey(services().apikeys, role, None, expires, name, as_json)


add_apikey_list_and_revoke(apikey, services)
