"""`audit`: the events of the ledger, their signed export and its verification."""

from __future__ import annotations

from label_dp.cli.audit_group import Audited, add_audit_commands
from labels_party.cli.app import audit, services


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
