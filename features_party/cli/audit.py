"""`audit`: the append-only, hash-chained store and its signed export."""

from __future__ import annotations

from features_party.cli.app import audit, services
from label_dp.cli.audit_group import Audited, add_audit_commands


def _audited() -> Audited:
    party = services(existing=True)
    home = party.home
    signer, names = party.pinned.for_envelope, party.apikeys.names
    return Audited(party.database, party.audit, party.heads, home.own_key(), home.public_key, signer, names=names)


add_audit_commands(
    audit,
    "features",
    _audited,
    population="Only this population (its id).",
    kind="message-accepted",
    key="Public key of the export's party; default this party's own, or a pinned one.",
)
