"""The command line of the labels party and what its commands share."""

from __future__ import annotations

from typing import Any

from label_dp.cli.party_commands import commands_of

app, apikey, audit = commands_of(
    "labels-party", "Take in sensitive labels, account for every ε, and emit one signed, privatized message."
)


def services(existing: bool = False, **options: Any) -> Any:
    """`existing`: for commands that only look, which must not make a home, keys and an empty ledger on the way.
    `options`: settings that an option of the command gives, or None."""
    from labels_party.bootstrap import bootstrap

    return bootstrap(existing=existing, chosen={name: value for name, value in options.items() if value is not None})
