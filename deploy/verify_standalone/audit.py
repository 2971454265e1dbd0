"""An audit export: a chain of events, and the ledger that its charges add up to."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from .comparison import Verified
from .document import check_format
from .envelope import canonical_bytes, open_envelope, parse, read
from .exact import ATTO, NANO, decimal, units
from .members import GENESIS, count, members, moment, text
from .receipts import Receipts
from .refusal import refuse
from .rules import NAMES, Rules

EXPORT_TYPE = "application/vnd.label-dp.audit-export+json"
MAX_EXPORT = 1 << 30  # bytes of the envelope
MEMBERS = {"format", "party", "made", "count", "head", "events"}
TIME = re.compile(r"\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}:\d{2}Z)?", re.ASCII)
EVENT_MEMBERS = {
    *("format", "store", "party", "sequence", "previous", "time", "kind", "subject"),
    *("epsilon_nano", "delta", "unit", "audiences", "actor", "details"),
}
SUBJECT_MEMBERS = {"population", "population_name", "label", "batch", "work", "attempt"}


def open_export(path: Path, key: Ed25519PublicKey, key_id: str) -> tuple[Verified, list[str]]:
    """What was read, the export and the receipts in it; and what was checked, a line each: the signature, the chain of
    events, ε per batch within its lifetime, receipts."""
    document = parse(open_envelope(read(path, MAX_EXPORT), key, key_id, EXPORT_TYPE), "the export")
    check_format(document, "label-dp-audit-export")
    members(document, MEMBERS, "the export")
    text(document["party"], "the party")
    count(document["count"], 0, (1 << 53) - 1, "the count of events")
    moment(document["made"], "when the export was made", TIME)
    previous, rules, receipts = GENESIS, Rules(), Receipts(key, key_id)
    for number, event in enumerate(document["events"], start=1):
        _check_event(number, event, previous, document["events"][0])
        previous = hashlib.sha256(canonical_bytes(event)).hexdigest()
    if len(document["events"]) != document["count"] or previous != document["head"]:
        refuse("count or head of the export are not those of its events")
    for number, event in enumerate(document["events"], start=1):
        rules.add(number, event)
    for number, event in enumerate(document["events"], start=1):
        receipts.add(number, event)
    said = [f"signature of {key_id}", f"{document['count']} events of the {document['party']}, head {previous}"]
    for (population, batch), (nano, atto) in rules.spent.items():
        delta = f" and δ {decimal(atto, ATTO)}" if atto else ""
        life = decimal(rules.populations[population]["life"])
        said.append(f"population {population}, batch {batch}: ε {decimal(nano)} of {life}{delta} spent per example")
    for (_, batch), (items, _) in rules.received.held.items():
        said.append(f"accepted of batch {batch}: ε {decimal(sum(cost for _, cost in items))} per example")
    said.append(f"rules {min(NAMES)} to {max(NAMES)} of an audit chain, but 19: that needs the other party's export")
    if receipts.count:
        said.append(f"{receipts.count} signed receipts, linked to each other")
    said.append("not checked: that no events were cut off at the end (compare the head with one kept elsewhere)")
    return (document, receipts), said


def _check_event(number: int, event: Any, previous: str, first: Any) -> None:
    if not isinstance(event, dict) or set(event) != EVENT_MEMBERS or set(event["subject"]) != SUBJECT_MEMBERS:
        refuse(f"event {number} has missing or unknown members")
    if event["format"] != "label-dp-audit/1":
        refuse(f"event {number} has an unknown format")
    if type(event["sequence"]) is not int or event["sequence"] != number:
        refuse(f"event {number} carries number {event['sequence']}: events are missing or reordered")
    if event["previous"] != previous:
        refuse(f"event {number} does not link to the event before it")
    if event["store"] != first["store"]:
        refuse(f"event {number} belongs to another audit store")
    eps = event["epsilon_nano"]
    if set(eps) != {"clip", "prior", "randomize", "total"} or any(type(v) is not int or v < 0 for v in eps.values()):
        refuse(f"event {number} has a charge that is not in whole nano-ε")
    if eps["clip"] + eps["prior"] + eps["randomize"] != eps["total"]:
        refuse(f"event {number}: the parts of ε do not add up to its total")
    if eps["total"] > 1_000_000 * NANO or units(event["delta"], ATTO, f"δ of event {number}") > ATTO:
        refuse(f"event {number} charges more ε or δ than there is")
    _check_members(number, event)


def _check_members(number: int, event: Any) -> None:
    subject, unit = event["subject"], event["unit"]
    texts = [event[name] for name in ("store", "party", "previous", "time", "kind", "actor")]
    optional = [subject[name] for name in SUBJECT_MEMBERS - {"attempt"}]
    counts = [subject["attempt"], unit["max_examples"]]
    if (
        not isinstance(event["audiences"], list)
        or not isinstance(event["details"], dict)
        or not all(isinstance(one, str) for one in texts + event["audiences"])
        or not all(one is None or isinstance(one, str) for one in [*optional, unit["column"]])
        or not all(number is None or (type(number) is int and number >= 1) for number in counts)
        or set(unit) != {"kind", "column", "max_examples"}
        or unit["kind"] != ("unit" if unit["column"] else "example")
    ):
        refuse(f"event {number} has a member of the wrong kind")
    moment(event["time"], f"the day of event {number}")
