"""The command line of the labels party, `serve`, `audit`, and what the other commands share."""

from __future__ import annotations

from typing import Any

from label_dp.cli.audit_group import Audited, add_audit_commands
from label_dp.cli.party_commands import add_serve, commands_of

app, apikey, audit = commands_of(
    "labels-party", "Take in sensitive labels, account for every ε, and emit one signed, privatized message."
)


def services(existing: bool = False, **options: Any) -> Any:
    """`existing`: for commands that only look, which must not make a home, keys and an empty ledger on the way.
    `options`: settings that an option of the command gives, or None."""
    from labels_party.bootstrap import bootstrap

    return bootstrap(existing=existing, chosen={name: value for name, value in options.items() if value is not None})


def _application(services: Any) -> Any:
    from labels_party.api.app import create_app

    return create_app(services)


serving = add_serve(app, "labels party", 8001, services, _application)


def _audited() -> Audited:
    party = services(existing=True)
    return Audited(
        party.database,
        party.audit,
        party.heads,
        party.key,
        party.home.public_key,
        party.receipts.signer,
        lambda connection, name: str(party.populations.get(connection, name).id),
        party.receipts.check,
        party.apikeys.names,
    )


add_audit_commands(
    audit,
    "labels",
    _audited,
    population="Name or id of a population.",
    kind="release-charged",
    key="Public key of the export's party; default this party's own, or a registered receipt key.",
)
