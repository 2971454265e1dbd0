"""`keygen` and `apikey`: the signing key, and keys for the REST interface."""

from __future__ import annotations

from typing import Annotated

import typer

from label_dp.cli.output import echo
from label_dp.cli.party_commands import (
    Expires,
    Json,
    KeyName,
    add_apikey_list_and_revoke,
    create_apikey,
    show_own_key,
)
from labels_party.cli.app import apikey, app, services


@app.command()
def keygen(as_json: Json = False) -> None:
    """Make the signing key (once) and show where its public half is; give that file to the features party."""
    party = services()
    show_own_key(party.key.public.id, party.home.public_key, as_json)


@apikey.command("create")
def apikey_create(
    role: Annotated[
        str,
        typer.Option(
            help="owner, ingest, features or auditor, which reads and also approves what waits for a second person."
        ),
    ],
    audience: Annotated[str | None, typer.Option(help="For role features: whose messages the key may read.")] = None,
    name: KeyName = None,
    expires: Expires = None,
    receipt_key: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|BASE64",
            help="For role features: the receiver's keys/signing.pub. Its receipts are kept from then on.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a key; it is shown once, alone on stdout."""
    from label_dp.errors import InvalidInput
    from labels_party.work.receipts import receipt_key as read_key

    reads = audience or ("features-party" if role == "features" else None)
    if audience is not None and "," in audience:
        raise InvalidInput("The name of an audience has no comma. Make a key for each of several audiences.")
    if receipt_key is not None and (role != "features" or reads is None):
        raise InvalidInput("--receipt-key goes with --role features: only an audience gives receipts.")
    key = read_key(receipt_key) if receipt_key is not None else None
    party = services()
    if key is not None and reads is not None:
        party.receipts.register(reads, key, "command line")
        echo(f"receipts of {reads} are checked with {key.id}; compare it with its owner", error=True)
    create_apikey(party.apikeys, role, reads, expires, name, as_json)


add_apikey_list_and_revoke(apikey, services)
