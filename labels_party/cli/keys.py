"""`keygen`, `invite`, `accept-invitation` and `apikey`: the signing key, features parties, and keys for the REST
interface."""

from __future__ import annotations

from typing import Annotated

import typer

from label_dp.cli import party_commands as common
from label_dp.cli.output import echo, emit
from label_dp.cli.panels import ADMINISTRATION
from label_dp.errors import InvalidInput
from label_dp.moments import DAY
from labels_party.cli.app import apikey, app, services


@app.command()
def keygen(as_json: common.Json = False) -> None:
    """Make the signing key (once) and show where its public half is; give that file to the features party."""
    party = services()
    common.show_own_key(party.key.public.id, party.home.public_key, as_json)


@app.command(rich_help_panel=ADMINISTRATION)
def invite(
    url: Annotated[str, typer.Option(help="Our service, as the features party reaches it.")],
    name: common.OwnName,
    out: common.InvitationOut,
    force: common.Force = False,
    as_json: common.Json = False,
) -> None:
    """Write an invitation for a features party: our name, address and public key, and a code to compare by telephone.

    Its answer goes to `accept-invitation`, and then no key or address need be sent.
    """
    from label_dp.documents.invitation import Invitation

    party = services()
    key, today = party.key.now(), party.audit.now()[:DAY]
    ours = Invitation.of(key, party="labels", name=name, url=url, created=today)
    common.write_invitation(ours, key, out, force)
    data = {"key_id": key.public.id, "name": name, "url": ours.url, "out": str(out), "code": ours.code}
    then = f"features-party accept-invitation {out.name} --name THEIR-NAME --out answer.json"
    emit(data, as_json, lambda: common.say_code(ours, out, then))


@app.command("accept-invitation", rich_help_panel=ADMINISTRATION)
def accept_invitation(
    file: common.InvitationFile,
    code: common.Code = None,
    expires: common.Expires = None,
    another: Annotated[
        bool, typer.Option("--another-key", help="The audience has a key already, and this is a further one of it.")
    ] = False,
    as_json: common.Json = False,
) -> None:
    """Know the features party that answered our invitation: its API key for its audience, and its receipts from now
    on."""
    from label_dp.documents.invitation import Invitation

    answer, party = Invitation.read(file, "features"), services(existing=True)
    if not party.own_keys.has(answer.answers):
        raise InvalidInput(
            f"'{file}' answers the invitation of another labels party; none of our keys is {answer.answers}."
        )
    common.compare_code(answer, code)
    keys = [state["key_id"] for state in party.receipts.state(answer.audience)]
    if keys and answer.public.id not in keys and not another:
        raise InvalidInput(
            f"The audience '{answer.audience}' has another key already, and whoever accepts reads all its messages. If "
            f"{answer.name} is somebody else, have them choose another FEATURES_PARTY_NAME and answer again; if it is "
            "the same party, say --another-key."
        )
    party.receipts.register(answer.audience, answer.public, "command line")
    key_id = party.apikeys.register(answer.api_key_sha256, "features", answer.audience, expires, answer.name)
    data = {"name": answer.name, "audience": answer.audience, "api_key_id": key_id, "receipt_key_id": answer.public.id}

    def human() -> None:
        echo(f"{answer.name} may read what names the audience {answer.audience}, by API key {key_id}")
        echo(f"its receipts are checked with {answer.public.id}")

    emit(data, as_json, human)


@apikey.command("create")
def apikey_create(
    role: Annotated[
        str,
        typer.Option(
            help="owner, ingest, features or auditor, which reads and also approves what waits for a second person."
        ),
    ],
    audience: Annotated[str | None, typer.Option(help="For role features: whose messages the key may read.")] = None,
    name: common.KeyName = None,
    expires: common.Expires = None,
    receipt_key: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|BASE64",
            help="For role features: the receiver's keys/signing.pub. Its receipts are kept from then on.",
        ),
    ] = None,
    as_json: common.Json = False,
) -> None:
    """Make a key; it is shown once, alone on stdout."""
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
    common.create_apikey(party.apikeys, role, reads, expires, name, as_json)


common.add_apikey_list_and_revoke(apikey, services)
