"""Evidence in exports that a party went on after its backup: what it charged since would be forgotten."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from label_dp.audit.compare import FORK, MISSING_WORK, ROLLBACK, Side, compare_own, compare_parties
from label_dp.audit.events import Event
from label_dp.audit.receipts import ACCEPTANCES, Receipts
from label_dp.audit.rules import check_rules
from label_dp.audit.store import Export, read_export
from label_dp.audit.verification import OTHER
from label_dp.backup.port import Evidence
from label_dp.backup.port import Side as PartySide
from label_dp.columnar.tables import read_bytes
from label_dp.documents.signing import VerifyingKey, named_key
from label_dp.errors import Conflict

LATER = (MISSING_WORK, ROLLBACK)  # findings of a store that is only older


def gathered(
    mine: PartySide,
    events: list[Event],
    key: VerifyingKey,
    exports: list[Path],
    signer: Callable[[bytes], VerifyingKey],
) -> Evidence:
    """What `exports`, each of this party or of the other one, say of the time after `events`.

    Raises Conflict where one tells another history than the backup, and what `read_export` raises.
    """
    evidence = Evidence()
    others: list[tuple[Path, Export, VerifyingKey]] = []
    for path in exports:
        envelope = read_bytes(path)
        ours = named_key(envelope) == key.id
        signed_by = key if ours else signer(envelope)
        export = read_export(envelope, signed_by)
        check_rules(export.events)
        Receipts.of(export.events, signed_by)
        if not ours:
            others.append((path, export, signed_by))
            continue
        for finding in compare_own(events, export).findings:
            if finding["kind"] == FORK:
                raise Conflict(f"The backup and '{path}' tell two histories. {finding['sentence']} Nothing was made.")
        if len(export.events) > len(events) + len(evidence.events):
            evidence.events = export.events[len(events) :]
    if evidence.events:
        last = evidence.events[-1]
        evidence.sentences.append(
            f"An export of this party itself goes on to event {last.sequence} ({last.time}); the backup ends at event "
            f"{len(events)}."
        )
    for path, export, signed_by in others:
        _of_other(mine, [*events, *evidence.events], key, (path, export, signed_by), evidence)
    return evidence


def _of_other(
    mine: PartySide,
    known: list[Event],
    key: VerifyingKey,
    other: tuple[Path, Export, VerifyingKey],
    found: Evidence,
) -> None:
    path, export, signed_by = other
    here = Side(known, key, "the backup")
    there = Side(export.events, signed_by, f"the export of the {OTHER[mine]} party", export.made)
    labels = mine == "labels"
    compared = compare_parties(here, there) if labels else compare_parties(there, here)
    for finding in compared.findings:
        if finding["kind"] in LATER:
            found.sentences.append(finding["sentence"])
        elif finding["kind"] != "missing-receipt":
            raise Conflict(f"The backup does not go with '{path}'. {finding['sentence']} Nothing was made.")
    missing = {f["work"] for f in compared.findings if f["kind"] == MISSING_WORK}
    if labels:
        found.accepted += [
            e
            for e in export.events
            if e.kind in ACCEPTANCES and e.subject.work in missing and e.details.get("key_id") == key.id
        ]
