"""Verification of a party's own store and of exports, and comparison of the two; each returns a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from label_dp.audit.checks import report
from label_dp.audit.compare import ComparedStore, StoreComparison, compare_own, compare_parties
from label_dp.audit.events import Event
from label_dp.audit.hand_overs import hand_overs
from label_dp.audit.heads import Heads, compare_exports
from label_dp.audit.receipts import ReceiptChain
from label_dp.audit.rules import check_rules
from label_dp.audit.show import Totals
from label_dp.audit.store import AuditStore, Export, read_export, verify_export
from label_dp.documents.signing import VerifyingKey, named_key
from label_dp.errors import InvalidInput

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from label_dp.store.database import Database


Party = Literal["labels", "features"]
OTHER: dict[Party, Party] = {"labels": "features", "features": "labels"}


def verify_store(connection: Connection, store: AuditStore, key: VerifyingKey) -> dict[str, Any]:
    """Verify a party's own store and report. Raises AuditChainBroken naming the first wrong event."""
    count, head = store.verify(connection)
    check_rules(store.scan(connection))
    ReceiptChain.of(store.scan(connection), key)
    return report(count, head, _populations(store.scan(connection)), export=False)


def verify_file(path: Path, choose: Callable[[bytes], VerifyingKey]) -> dict[str, Any]:
    """Verify an export with the key that `choose` returns for its envelope, and report. Raises MalformedManifest,
    SignatureInvalid, AuditChainBroken, InvalidFile."""
    from label_dp.columnar.tables import read_bytes

    envelope = read_bytes(path)
    key = choose(envelope)
    events = verify_export(envelope, key)
    check_rules(events)
    ReceiptChain.of(events, key)
    return report(len(events), events[-1].digest if events else "", _populations(events), export=True)


def _populations(events: Iterable[Event]) -> list[dict[str, Any]]:
    totals = Totals()
    for event in events:
        totals.add(event)
    return totals.populations()


def compare_with(
    path: Path,
    own: list[Event],
    own_key: VerifyingKey,
    party: Party,
    choose: Callable[[bytes], VerifyingKey],
    heads: Callable[[Export, str], StoreComparison] = lambda _export, _key_id: StoreComparison(),
) -> dict[str, Any]:
    """Compare this party's verified events with the export at `path`, its own or the other party's.

    `choose` returns the key of an export that is not signed with our own. `heads` compares an export of the other party
    with earlier ones, by its key's id. Raises as `verify_file`.
    """
    from label_dp.columnar.tables import read_bytes

    envelope = read_bytes(path)
    # an export from before a hand-over is signed with an earlier key of ours
    before = {hand_over.old.id: hand_over.old for hand_over in hand_overs(own)} if party == "labels" else {}
    our_key = (before | {own_key.id: own_key}).get(named_key(envelope))
    ours, key = our_key is not None, our_key or choose(envelope)
    export = read_export(envelope, key)
    check_rules(export.events)
    ReceiptChain.of(export.events, key)
    if ours:
        result = compare_own(own, export)
    else:
        here = ComparedStore(own, own_key, "this party's store")
        there = ComparedStore(export.events, key, f"the export of the {OTHER[party]} party", export.made or "")
        result = compare_parties(here, there) if party == "labels" else compare_parties(there, here)
        comparison = heads(export, key.id)
        result.findings[:0], result.notes[len(result.notes) :] = comparison.findings, comparison.notes
    return {
        "against": str(path),
        "of": "this party" if ours else f"the {OTHER[party]} party",
        "made": export.made or None,
        "events": len(own),
        "head": own[-1].digest if own else "",
        "agrees": not result.findings,
        "findings": result.findings,
        "notes": result.notes,
    }


def seen_before(database: Database, heads: Heads) -> Callable[[Export, str], StoreComparison]:
    """Return the `heads` of `compare_with`: compares an export with stored heads, and stores its own if it agrees."""

    def compare(export: Export, key_id: str) -> StoreComparison:
        def work(connection: Connection) -> StoreComparison:
            comparison = heads.compare(connection, export, key_id)
            if not comparison.findings:
                heads.keep(connection, export, key_id)
            return comparison

        return database.write("audit.heads", work)

    return compare


def compare_files(path: Path, against: Path, choose: Callable[[bytes], VerifyingKey]) -> dict[str, Any]:
    """Compare two exports of one party, each verified as by `verify_file`; reads no store. Raises as `verify_file`, and
    InvalidInput if they are of two parties."""
    from label_dp.columnar.tables import read_bytes

    exports, keys = [], []
    for one in (path, against):
        envelope = read_bytes(one)
        keys.append(choose(envelope))
        export = read_export(envelope, keys[-1])
        check_rules(export.events)
        ReceiptChain.of(export.events, keys[-1])
        exports.append(export)
    stores = {export.events[0].store for export in exports if export.events}
    if keys[0] != keys[1] and len(stores) > 1:
        raise InvalidInput("These are exports of two parties; compare one of them with a store of yours (--against).")
    comparison = compare_exports(*exports)
    return {
        "against": str(against),
        "of": "the same party",
        "made": exports[1].made or None,
        "events": len(exports[0].events),
        "head": exports[0].head,
        "agrees": not comparison.findings,
        "findings": comparison.findings,
        "notes": comparison.notes,
    }
