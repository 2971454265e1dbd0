"""An audit export: a chain of events, and the ledger that its charges add up to."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from .canonical import canonical_bytes, parse
from .envelope import open_envelope, read
from .exact import ATTO, NANO, decimal, units
from .receipts import Receipts
from .refusal import refuse

EXPORT_TYPE = "application/vnd.label-dp.audit-export+json"
MAX_EXPORT = 1 << 30  # bytes of the envelope
GENESIS = "0" * 64
FORMAT_1 = {"format", "party", "count", "head", "events"}
MEMBERS = {"label-dp-audit-export/1": FORMAT_1, "label-dp-audit-export/2": FORMAT_1 | {"made"}}
EVENT_MEMBERS = {
    *("format", "store", "party", "sequence", "previous", "time", "kind", "subject"),
    *("epsilon_nano", "delta", "unit", "audiences", "actor", "details"),
}
SUBJECT_MEMBERS = {"population", "population_name", "label", "batch", "release", "attempt"}


class Ledger:
    """Adds up charges: per batch never below zero, never beyond the lifetime ε and δ that its population declared."""

    def __init__(self) -> None:
        self.spent: dict[tuple[str, str], int] = {}
        self.lifetime: dict[str, int] = {}
        self.spent_delta: dict[tuple[str, str], int] = {}
        self.lifetime_delta: dict[str, int] = {}
        self.four_eyes: set[str] = set()
        self.asked: dict[str, str] = {}
        self.approved: set[str] = set()

    def add(self, number: int, event: Any) -> None:
        kind, subject, details = event["kind"], event["subject"], event["details"]
        population, release = str(subject["population"]), str(subject["release"])
        if kind == "population-created":
            self.lifetime[population] = units(details["lifetime_epsilon"], NANO, "a lifetime ε")
            self.lifetime_delta[population] = units(details.get("lifetime_delta", "0"), ATTO, "a lifetime δ")
            if details.get("four_eyes"):
                self.four_eyes.add(population)
        elif kind == "release-requested":
            self.asked[release] = event["actor"]
        elif kind == "release-approved":
            if event["actor"] == self.asked.get(release, event["actor"]):
                refuse(f"event {number}: a release was approved by whoever asked for it, or nobody asked for it")
            self.approved.add(release)
        elif kind in ("release-charged", "charge-returned", "message-accepted", "answer-accepted"):
            self._charge(number, event, population, release)

    def _charge(self, number: int, event: Any, population: str, release: str) -> None:
        kind = event["kind"]
        if kind == "release-charged" and population in self.four_eyes and release not in self.approved:
            refuse(f"event {number}: a release of a four-eyes population was charged without an approval")
        owner = population if not kind.endswith("-accepted") else f"{population} of {event['details'].get('key_id')}"
        place = owner, str(event["subject"]["batch"])
        total = event["epsilon_nano"]["total"]
        self.spent[place] = self.spent.get(place, 0) + (-total if kind == "charge-returned" else total)
        if self.spent[place] < 0:
            refuse(f"event {number}: more ε is returned than was charged")
        if self.spent[place] > self.lifetime.get(owner, self.spent[place]):
            refuse(f"event {number}: the batch is charged beyond its lifetime ε")
        atto = units(event["delta"], ATTO, f"δ of event {number}")
        self.spent_delta[place] = self.spent_delta.get(place, 0) + (-atto if kind == "charge-returned" else atto)
        if not 0 <= self.spent_delta[place] <= self.lifetime_delta.get(owner, self.spent_delta[place]):
            refuse(
                f"event {number}: the batch is charged beyond its lifetime δ, or more δ is returned than was charged"
            )


def verify_audit(path: Path, key: Ed25519PublicKey, key_id: str) -> list[str]:
    """What was checked, a line each: the signature, the chain of events, ε per batch within its lifetime, receipts."""
    document = parse(open_envelope(read(path, MAX_EXPORT), key, key_id, EXPORT_TYPE), "the export")
    if document["format"] not in MEMBERS or set(document) != MEMBERS[document["format"]]:
        refuse("the document is not an audit export of format 1 or 2")
    previous, ledger, receipts = GENESIS, Ledger(), Receipts(key, key_id)
    for number, event in enumerate(document["events"], start=1):
        _check_event(number, event, previous, document["events"][0])
        ledger.add(number, event)
        receipts.add(number, event)
        previous = hashlib.sha256(canonical_bytes(event)).hexdigest()
    if len(document["events"]) != document["count"] or previous != document["head"]:
        refuse("count or head of the export are not those of its events")
    said = [f"signature of {key_id}", f"{document['count']} events of the {document['party']}, head {previous}"]
    for (population, batch), nano in ledger.spent.items():
        of = f" of {decimal(ledger.lifetime[population])}" if population in ledger.lifetime else ""
        delta = f" and δ {decimal(atto, ATTO)}" if (atto := ledger.spent_delta[population, batch]) else ""
        said.append(f"population {population}, batch {batch}: ε {decimal(nano)}{of}{delta} spent per example")
    if receipts.count:
        said.append(f"{receipts.count} signed receipts, linked to each other")
    said.append("not checked: that no events were cut off at the end (compare the head with one kept elsewhere)")
    return said


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
    units(event["delta"], ATTO, f"δ of event {number}")
