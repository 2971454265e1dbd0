"""Verification of a party's own store and of exports, and comparison of the two; each returns a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
from label_dp.audit.store import AuditStore, Export, read_export
from label_dp.documents.hand_over import KeyFamilies
from label_dp.documents.signing import VerifyingKey, named_key
from label_dp.errors import InvalidInput
from label_dp.schemas.json_types import JsonObject

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
    export, _ = _verified(path, choose)
    return report(len(export.events), export.head, _populations(export.events), export=True)


def _verified(path: Path, choose: Callable[[bytes], VerifyingKey]) -> tuple[Export, VerifyingKey]:
    from label_dp.columnar.tables import read_bytes

    envelope = read_bytes(path)
    key = choose(envelope)
    export = read_export(envelope, key)
    check_rules(export.events)
    ReceiptChain.of(export.events, key)
    return export, key


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
    heads: Callable[[Export, list[str]], StoreComparison] = lambda _export, _key_ids: StoreComparison(),
) -> dict[str, Any]:
    """Compare this party's verified events with the export at `path`, its own or the other party's.

    `choose` returns the key of an export that is not signed with our own. `heads` compares an export of the other party
    with earlier ones, by its key's id and those of its party. Raises as `verify_file` and `is_own`.
    """
    # an export from before a hand-over is signed with an earlier key of ours
    before = {hand_over.old.id: hand_over.old for hand_over in hand_overs(own)} if party == "labels" else {}
    our_keys = before | {own_key.id: own_key}
    export, key = _verified(path, lambda envelope: our_keys.get(named_key(envelope)) or choose(envelope))
    families = KeyFamilies(hand_overs([*own, *export.events]))
    if ours := is_own(own, families.relatives(own_key.id), export, key):
        result = compare_own(own, export)
    else:
        here = ComparedStore(own, own_key, "this party's store")
        there = ComparedStore(export.events, key, f"the export of the {OTHER[party]} party", export.made or "")
        result = compare_parties(here, there) if party == "labels" else compare_parties(there, here)
        comparison = heads(export, [key.id, *families.relatives(key.id)])
        result.findings[:0], result.notes[len(result.notes) :] = comparison.findings, comparison.notes
    of = "this party" if ours else f"the {OTHER[party]} party"
    return _compared(result, path, of, export, own)


def is_own(own: list[Event], key_ids: list[str], export: Export, key: VerifyingKey) -> bool:
    """Return whether the party of `own`, whose keys are `key_ids` by both chains, signed an export with `key`; False:
    the other party did. Raises InvalidInput if another labels party did."""
    ours = key.id in key_ids
    if own and export.events and not ours and own[0].party == export.events[0].party == "labels-party":
        raise InvalidInput("The export is of another labels party; give one of this party or of a receiver.")
    return ours


def _compared(result: StoreComparison, against: Path, of: str, export: Export, events: Sequence[Event]) -> JsonObject:
    return {
        "against": str(against),
        "of": of,
        "made": export.made or None,
        "events": len(events),
        "head": events[-1].digest if events else "",
        "agrees": not result.findings,
        "findings": result.findings,
        "notes": result.notes,
    }


def seen_before(database: Database, heads: Heads) -> Callable[[Export, list[str]], StoreComparison]:
    """Return the `heads` of `compare_with`: compares an export with stored heads, and stores its own if it agrees."""

    def compare(export: Export, key_ids: list[str]) -> StoreComparison:
        def work(connection: Connection) -> StoreComparison:
            comparison = heads.compare(connection, export, key_ids)
            if not comparison.findings:
                heads.keep(connection, export, key_ids[0])
            return comparison

        return database.write("audit.heads", work)

    return compare


def compare_files(path: Path, against: Path, choose: Callable[[bytes], VerifyingKey]) -> dict[str, Any]:
    """Compare two exports of one party, each verified as by `verify_file`; reads no store. Raises as `verify_file`, and
    InvalidInput if they are of two parties."""
    (one, key), (other, other_key) = (_verified(each, choose) for each in (path, against))
    stores = {export.events[0].store for export in (one, other) if export.events}
    if key != other_key and len(stores) > 1:
        raise InvalidInput("These are exports of two parties; compare one of them with a store of yours (--against).")
    return _compared(compare_exports(one, other), against, "the same party", other, one.events)
