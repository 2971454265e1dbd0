"""`keygen`, `accept-invitation`, `pin-key`, `pinned` and `apikey`: our key, the keys we trust, and keys for the REST
interface."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from features_party.cli.app import apikey, app, services
from label_dp.cli import party_commands as common
from label_dp.cli.output import echo, emit, table
from label_dp.cli.panels import ADMINISTRATION
from label_dp.moments import DAY
from label_dp.store.output_files import writable

pinned = typer.Typer(help="The labels parties' keys that we trust.", no_args_is_help=True)
app.add_typer(pinned, name="pinned", rich_help_panel=ADMINISTRATION)


@app.command()
def keygen(as_json: common.Json = False) -> None:
    """Make the key that signs receipts and audit exports (once) and show where its public half is; give that file to
    the labels party."""
    party = services()
    common.show_own_key(party.home.own_key().public.id, party.home.public_key, as_json)


@app.command("accept-invitation", rich_help_panel=ADMINISTRATION)
def accept_invitation(
    file: common.InvitationFile,
    out: common.InvitationOut,
    name: common.OwnName,
    code: common.Code = None,
    force: common.Force = False,
    as_json: common.Json = False,
) -> None:
    """Trust the labels party whose invitation this is, and write ours in answer: with it our key there is known.

    From then on `pull` and the asking commands need neither --url nor an API key.
    """
    from label_dp.documents.invitation import Invitation

    invitation = Invitation.read(file, "labels")
    common.compare_code(invitation, code)
    writable(out, force)  # before anybody is trusted
    party = services()
    pin = party.pinned.trust(
        invitation.public, invitation.name, origin="invitation, its code compared", url=invitation.url
    )
    ours = Invitation.of(
        key := party.home.own_key(),
        party="features",
        name=name,
        created=party.pinned.now()[:DAY],
        audience=party.settings.name,
        api_key_sha256=party.pinned.api_key_digest(invitation.url),
        answers=pin.key.id,
    )
    common.write_invitation(ours, key, out, force)

    def human() -> None:
        echo(f"pinned {pin.key.id} of {pin.name}, {pin.url}")
        common.say_code(ours, out, f"labels-party accept-invitation {out.name}")

    emit(pin.as_json() | {"audience": ours.audience, "out": str(out), "code": ours.code}, as_json, human)


@app.command("pin-key", rich_help_panel=ADMINISTRATION)
def pin_key(
    public_key: Annotated[Path, typer.Argument(metavar="PUB", help="The labels party's keys/signing.pub.")],
    name: Annotated[str | None, typer.Option(help="Whose it is; shown wherever the key is.")] = None,
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="DAYS|DATE", help="Trusted for so many days, or until the end of this day (UTC); default ever."
        ),
    ] = None,
    origin: Annotated[str | None, typer.Option(help="Where it came from, and how it was compared.")] = None,
    as_json: common.Json = False,
) -> None:
    """Trust a labels party's key: its messages are then accepted without naming the key."""
    pin = services().pinned.pin(public_key, name, expires, origin)
    emit(pin.as_json(), as_json, lambda: echo(f"pinned {pin.key.id}"))


@pinned.command("list")
def pinned_list(as_json: common.Json = False) -> None:
    """Show each key, whose it is, when and from where it came, and until when it is trusted."""
    found = services(True).pinned.listed()
    columns = [
        "name",
        "url",
        "key_id",
        "state",
        "pinned",
        "by",
        "origin",
        "expires",
        "revoked",
        "handed_over",
        "successor",
    ]
    shown = [c for c in columns if c in ("key_id", "state") or any(row[c] for row in found)]
    rows = [[str(row[c] or "") for c in shown] for row in found]
    emit(found, as_json, lambda: table("Pinned keys", [c.replace("_", " ") for c in shown], rows))


@pinned.command("follow")
def pinned_follow(
    hand_overs: Annotated[
        Path, typer.Argument(metavar="FILE", help="What the labels party's `keys hand-overs` wrote.")
    ],
    as_json: common.Json = False,
) -> None:
    """Pin the keys to which pinned ones handed over, each in a document that it signed; a pull does so by itself."""
    from label_dp.columnar.tables import read_bytes
    from label_dp.documents.canonical import parse_canonical

    party = services(True)
    new = party.following.follow(parse_canonical(read_bytes(hand_overs)), "cli")
    said = [f"pinned {pin.key.id}, {pin.origin}" for pin in new] or ["nothing new"]
    emit([pin.as_json() for pin in new], as_json, lambda: echo("\n".join(said)))


@pinned.command("revoke")
def pinned_revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the key, as `pinned list` shows it.")],
    as_json: common.Json = False,
) -> None:
    """Accept nothing new under a key from now on; what was accepted stays, and its ε too."""
    pin = services(True).pinned.revoke(key_id)
    emit(pin.as_json(), as_json, lambda: echo(f"revoked {pin.key.id}"))


@apikey.command("create")
def apikey_create(
    role: Annotated[str, typer.Option(help="trainer or auditor.")],
    name: common.KeyName = None,
    expires: common.Expires = None,
    as_json: common.Json = False,
) -> None:
    """Make a key; it is shown once, alone on stdout."""
    common.create_apikey(services().apikeys, role, None, expires, name, as_json)


common.add_apikey_list_and_revoke(apikey, services)
