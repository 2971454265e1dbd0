"""What `audit verify` checks beyond the chain, and what no check of a store or an export can tell."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shared.audit.events import Event
from shared.audit.show import Totals
from shared.errors import AuditChainBroken

CHECKED = (
    "every event is in its canonical form and of a known format",
    "event numbers run from 1 without a gap, and each event holds the SHA-256 of the one before",
    "all events belong to one audit store",
    "the parts of every ε add up; no batch was given back more ε or δ than it was charged",
    "no batch spent more than its population's lifetime ε and δ, where the store declares them",
    "receipts are signed with the right key, say what their events say, and link to each other",
)
CHECKED_STORE = "the columns that queries use equal the hashed events"
CHECKED_EXPORT = "the signature, and that count and head are those of the events"
NOT_CHECKED = (
    "that no events were cut off at the end: compare with an export kept elsewhere (--against)",
    "that everything that happened was recorded: whoever ran another program on the labels left no event here",
)


def check_totals(events: Iterable[Event]) -> Totals:
    """Charges against lifetimes, event by event. Raises AuditChainBroken with the number of the first that is wrong."""
    totals = Totals()
    for event in events:
        total = totals.add(event)
        if total is not None and (total.nano < 0 or total.atto < 0):
            what = "ε" if total.nano < 0 else "δ"
            raise AuditChainBroken(f"Audit event {event.sequence} returns more {what} than its batch was charged.")
        if total is not None and total.lifetime_nano is not None and total.nano > total.lifetime_nano:
            raise AuditChainBroken(f"Audit event {event.sequence} charges a batch beyond its lifetime ε.")
        if total is not None and total.lifetime_atto is not None and total.atto > total.lifetime_atto:
            raise AuditChainBroken(f"Audit event {event.sequence} charges a batch beyond its lifetime δ.")
    return totals


def report(count: int, head: str, *, export: bool) -> dict[str, Any]:
    """What `audit verify` says when everything held."""
    checked = [*CHECKED, CHECKED_EXPORT if export else CHECKED_STORE]
    return {"events": count, "head": head, "verified": True, "checked": checked, "not_checked": list(NOT_CHECKED)}


def report_lines(data: dict[str, Any]) -> list[str]:
    lines = [f"{data['events']} events verified, head {data['head']}"]
    lines += [f"  checked: {what}" for what in data["checked"]]
    return lines + [f"  not checked: {what}" for what in data["not_checked"]]
