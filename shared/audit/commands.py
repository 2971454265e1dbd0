"""What `audit show` and `audit verify` print, the same for both parties; each party's commands read its own store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from shared.audit.checks import check_totals, report, report_lines
from shared.audit.compare import Side, compare_own, compare_parties
from shared.audit.events import Event
from shared.audit.receipts import Receipts
from shared.audit.show import Totals, describe, plain, sentence
from shared.audit.store import AuditStore, read_export, verify_export
from shared.message.signing import VerifyingKey, named_key
from shared.service.cli import emit, say, table

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection


Party = Literal["labels", "features"]
OTHER: dict[Party, Party] = {"labels": "features", "features": "labels"}


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
    found = totals.as_json()
    columns = ["population_name", "batch", "charges", "epsilon_spent", "epsilon_lifetime"]
    heads = ["population", "batch", "charges", "ε spent", "lifetime ε"]
    what = "ε"
    if any(t["delta_spent"] != "0" or t["delta_lifetime"] not in (None, "0") for t in found):
        columns, heads = [*columns, "delta_spent", "delta_lifetime"], [*heads, "δ spent", "lifetime δ"]
        what = "ε and δ"
    rows = [[plain("" if t[column] is None else t[column]) for column in columns] for t in found]
    table(f"{what} per example, by batch, in the audit store of the {party}", heads, rows)


def verify_store(connection: Connection, store: AuditStore, key: VerifyingKey) -> dict[str, Any]:
    """The report on a party's own store. Raises AuditChainBroken naming the first event that does not fit."""
    count, head = store.verify(connection)
    check_totals(store.scan(connection))
    Receipts.of(store.scan(connection), key)
    return report(count, head, export=False)


def verify_file(path: Path, key: VerifyingKey) -> dict[str, Any]:
    """The report on an export. Raises MalformedManifest, SignatureInvalid, AuditChainBroken, InvalidFile."""
    from shared.tables import read_bytes

    events = verify_export(read_bytes(path), key)
    check_totals(events)
    Receipts.of(events, key)
    return report(len(events), events[-1].digest if events else "", export=True)


def compare_with(
    path: Path, own: list[Event], own_key: VerifyingKey, mine: Party, choose: Callable[[bytes], VerifyingKey]
) -> dict[str, Any]:
    """This party's verified events against the export at `path`, of this party or of the other one.

    `choose` gives the key of an export that is not signed with our own. Raises what `verify_file` raises.
    """
    from shared.tables import read_bytes

    envelope = read_bytes(path)
    ours = named_key(envelope) == own_key.id
    key = own_key if ours else choose(envelope)
    export = read_export(envelope, key)
    check_totals(export.events)
    Receipts.of(export.events, key)
    if ours:
        found = compare_own(own, export)
    else:
        here = Side(own, own_key, "this party's store")
        there = Side(export.events, key, f"the export of the {OTHER[mine]} party", export.made or "")
        found = compare_parties(here, there) if mine == "labels" else compare_parties(there, here)
    return {
        "against": str(path),
        "of": "this party" if ours else f"the {OTHER[mine]} party",
        "made": export.made or None,
        "events": len(own),
        "head": own[-1].digest if own else "",
        "agrees": not found.findings,
        "findings": found.findings,
        "notes": found.notes,
    }


def show_comparison(data: dict[str, Any], as_json: bool) -> None:
    """What was found, a sentence each; exit code 1 where there is anything."""

    def human() -> None:
        for finding in data["findings"]:
            say(f"{finding['kind']}: {plain(finding['sentence'])}", indent=2)
        if data["agrees"]:
            say(f"{data['events']} events of this party's store agree with the export of {data['of']}", indent=2)
        for note in data["notes"]:
            say(f"  note: {plain(note)}", indent=2)

    emit(data, as_json, human)
    if data["findings"]:
        raise SystemExit(1)


def show_report(data: dict[str, Any], as_json: bool) -> None:
    def human() -> None:
        for line in report_lines(data):
            say(line, indent=2)

    emit(data, as_json, human)
