"""What `audit show` and `audit verify` print, the same for both parties; each party's commands read its own store."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.audit.checks import check_totals, report, report_lines
from shared.audit.events import Event
from shared.audit.show import Totals, describe, plain, sentence
from shared.audit.store import AuditStore, verify_export
from shared.message.signing import VerifyingKey
from shared.service.cli import emit, say, table

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection


def show(events: Iterable[Event], party: str, *, as_json: bool, lines: bool, totals_only: bool) -> None:
    """`events` as sentences with the totals, as one JSON list, as one JSON object a line, or the totals alone."""
    if lines:
        for event in events:
            print(json.dumps(describe(event), ensure_ascii=False))  # noqa: T201 - the command line's own output
        return
    if as_json and not totals_only:
        emit([describe(event) for event in events], True, lambda: None)
        return
    totals, shown = Totals(), 0
    for event in events:
        totals.add(event)
        shown += 1
        if not totals_only:
            say(f"{event.sequence:>6}  {event.time}  {event.kind:<20}  {sentence(event)}", indent=8)
    if as_json:
        emit(totals.as_json(), True, lambda: None)
    elif totals.batches:
        _totals_table(totals, party)
    elif not shown:
        print("No event fits.")  # noqa: T201 - as above


def _totals_table(totals: Totals, party: str) -> None:
    rows = [
        [
            plain(t["population_name"]),
            plain(t["batch"]),
            str(t["charges"]),
            t["epsilon_spent"],
            t["epsilon_lifetime"] or "",
        ]
        for t in totals.as_json()
    ]
    table(
        f"ε per example, by batch, in the audit store of the {party}",
        ["population", "batch", "charges", "ε spent", "lifetime ε"],
        rows,
    )


def verify_store(connection: Connection, store: AuditStore) -> dict[str, Any]:
    """The report on a party's own store. Raises AuditChainBroken naming the first event that does not fit."""
    count, head = store.verify(connection)
    check_totals(store.scan(connection))
    return report(count, head, export=False)


def verify_file(path: Path, key: VerifyingKey) -> dict[str, Any]:
    """The report on an export. Raises MalformedManifest, SignatureInvalid, AuditChainBroken, InvalidFile."""
    from shared.tables import read_bytes

    events = verify_export(read_bytes(path), key)
    check_totals(events)
    return report(len(events), events[-1].digest if events else "", export=True)


def show_report(data: dict[str, Any], as_json: bool) -> None:
    def human() -> None:
        for line in report_lines(data):
            say(line, indent=2)

    emit(data, as_json, human)
