"""Audit event, format `label-dp-audit/1`: canonical JSON, chained by SHA-256.

The bytes are hashed and signed, so this format cannot change cheaply. Every member is always present; one that does not
apply is null (subjects), 0 (charges) or empty (lists). Charges are whole nano-ε, rounded up; δ is a decimal string.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from typing import Any

from label_dp.documents.canonical import canonical_bytes, digest, parse_canonical
from label_dp.errors import AuditChainBroken
from label_dp.privacy import PER_EXAMPLE, Delta, Epsilon, EpsilonSplit, PrivacyUnit, delta_string, parse_delta
from label_dp.schemas.json_types import JsonObject

FORMAT = "label-dp-audit/1"
GENESIS = "0" * 64
DAY = 10  # characters of a day in a time
TIME = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)  # a day: others may see no more of a time

# kinds of events; only those in CHARGES add to what an example has spent
CREATED = "store-created"
POPULATION_CREATED = "population-created"
PEOPLE_DECLARED = "people-declared"  # a body of people, with a lifetime over all of its populations
BATCH_SEALED = "batch-sealed"
REQUESTED = "release-requested"  # in a four-eyes population: not charged before another person approves
APPROVED = "release-approved"
DECLINED = "release-declined"
CANCELLED = "release-cancelled"
CHARGED = "release-charged"
PUBLISHED = "release-published"
FAILED = "release-failed"
RETURNED = "charge-returned"  # before any draw: its ε is subtracted from the batch's spent ε
ACCEPTED = "message-accepted"
SECOND_REFUSED = "second-document-refused"  # another manifest or answer, validly signed, under an id accepted before
DOCUMENT_REFUSED = "document-refused"  # validly signed, but it contradicts what was accepted before
TRAINED = "model-trained"
BUDGET_ALERT = "budget-alert"  # a charge made a batch reach an alert's share of the lifetime ε
BATCH_PURGED = "batch-purged"
ERASURE_REQUESTED = "erasure-requested"
ERASED = "label-erased"
RECEIPT_KEY = "receipt-key-registered"  # by the owner: the key with which an audience signs its receipts
RECEIVED = "receipt-received"  # for a document that an audience accepted; `details` hold the signed receipt
# a charged computation other than a release: `details` name its kind
ANSWER_PUBLISHED = "answer-published"
ANSWER_SHARED = "answer-shared"  # another audience received an earlier answer, at no charge
ANSWER_FAILED = "answer-failed"  # its charge is kept
ANSWER_ACCEPTED = "answer-accepted"
ALLOWANCE_SET = "allowance-set"  # by the owner: ε that audiences may charge by answers of a kind
PREDICTOR_CREATED = "predictor-created"  # free of charge; its queries are charged
PREDICTOR_RETIRED = "predictor-retired"  # by its owner: its learned state is deleted
POLICY_PROPOSED = "policy-proposed"  # with a looser ceiling than the one in force
POLICY_APPLIED = "policy-applied"  # of the organisation: every later charge is held to its ceilings
KEY_HANDED_OVER = "key-handed-over"  # of a labels party, by the old key; `details` hold the signed hand-over
CHARGES = frozenset({CHARGED, ACCEPTED, ANSWER_ACCEPTED})
OF_LABELS_PARTY = (
    *(CREATED, POPULATION_CREATED, BATCH_SEALED, REQUESTED, APPROVED, DECLINED, CANCELLED, CHARGED, PUBLISHED, FAILED),
    *(RETURNED, BUDGET_ALERT, BATCH_PURGED, ERASURE_REQUESTED, ERASED, RECEIPT_KEY, RECEIVED, ANSWER_PUBLISHED),
    *(ANSWER_SHARED, ANSWER_FAILED, ALLOWANCE_SET, PREDICTOR_CREATED, PREDICTOR_RETIRED, KEY_HANDED_OVER),
    *(PEOPLE_DECLARED, POLICY_PROPOSED, POLICY_APPLIED),
)
OF_FEATURES_PARTY = (CREATED, ACCEPTED, ANSWER_ACCEPTED, SECOND_REFUSED, DOCUMENT_REFUSED, TRAINED, KEY_HANDED_OVER)
# the member of their details by which events of a body of people are looked up
OF_PEOPLE = {PEOPLE_DECLARED: "name", POPULATION_CREATED: "people", BATCH_SEALED: "people_ids"}
KINDS = tuple(dict.fromkeys((*OF_LABELS_PARTY, *OF_FEATURES_PARTY)))


@dataclass(frozen=True)
class Subject:
    """Population, batch and work of an event; all ids are public."""

    population: str | None = None
    population_name: str | None = None
    label: str | None = None
    batch: str | None = None
    work: str | None = None
    attempt: int | None = None

    def as_json(self) -> JsonObject:
        return {
            "population": self.population,
            "population_name": self.population_name,
            "label": self.label,
            "batch": self.batch,
            "work": self.work,
            "attempt": self.attempt,
        }


NOBODY = Subject()
NO_CHARGE = EpsilonSplit(Epsilon(0), Epsilon(0), Epsilon(0))


@dataclass(frozen=True)
class StatedAccount:
    """Totals that a labels party states with a document: ε and δ spent per example of its batch by then, and the
    lifetimes."""

    spent: Epsilon
    lifetime: Epsilon
    spent_delta: Delta
    lifetime_delta: Delta


@dataclass(frozen=True)
class Event:
    """Audit event; `store` to `at` are set by the audit store."""

    kind: str
    subject: Subject = NOBODY
    split: EpsilonSplit = NO_CHARGE
    unit: PrivacyUnit = PER_EXAMPLE
    audiences: tuple[str, ...] = ()
    actor: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    # filled in by the store
    store: str = ""
    party: str = ""
    sequence: int = 0
    previous: str = GENESIS
    time: str = ""  # UTC day: others may see no more of the time
    at: str = ""  # the second, for the store's own party; it is neither hashed nor exported

    @property
    def moment(self) -> str:
        """Time, as exactly as this store knows it."""
        return self.at or self.time

    @cached_property
    def account(self) -> StatedAccount:
        """Account that the labels party stated with an accepted document. Raises InvalidEpsilon unless canonical."""
        spent, lifetime = (Epsilon.canonical(self.details.get(f"epsilon_{what}")) for what in ("spent", "lifetime"))
        # messages of a population without a lifetime δ do not state one
        spent_delta, lifetime_delta = (
            Delta.canonical(self.details.get(f"delta_{what}", "0")) for what in ("spent", "lifetime")
        )
        return StatedAccount(spent, lifetime, spent_delta, lifetime_delta)

    @property
    def limit(self) -> str | None:
        """Further limit of a charge beside the lifetime: the id of a predictor (its cap), or a kind of answer (the
        audiences' allowance). A charge restored from a receiver's record may be either, so it counts as both. What is
        about a body of people has its name, and a seal in it the MAC of its ids."""
        if self.kind in OF_PEOPLE:
            about = self.details.get(OF_PEOPLE[self.kind])
            return about if isinstance(about, str) and about else None
        if self.kind != CHARGED:
            return None
        if "predictor" in self.details:
            return str(self.details["predictor"])
        if self.details.get("by_audience") is not None or "restored" in self.details:
            return str(self.details.get("answer"))
        return None

    def as_json(self) -> JsonObject:
        return {
            "format": FORMAT,
            "store": self.store,
            "party": self.party,
            "sequence": self.sequence,
            "previous": self.previous,
            "time": self.time,
            "kind": self.kind,
            "subject": self.subject.as_json(),
            "epsilon_nano": {
                "clip": self.split.clip.nano,
                "prior": self.split.prior.nano,
                "randomize": self.split.randomize.nano,
                "total": self.split.total.nano,
            },
            "delta": delta_string(self.split.delta_atto),
            "unit": self.unit.as_json(),
            "audiences": list(self.audiences),
            "actor": self.actor,
            "details": dict(self.details),
        }

    def body(self) -> bytes:
        return canonical_bytes(self.as_json())

    @property
    def digest(self) -> str:
        return digest(self.body())

    def placed(self, *, store: str, party: str, sequence: int, previous: str, time: str) -> Event:
        """Return the event in its place; `time` is a UTC time, of which only the day is hashed."""
        at = time if len(time) > DAY else ""
        return replace(self, store=store, party=party, sequence=sequence, previous=previous, time=time[:DAY], at=at)

    @classmethod
    def from_body(cls, body: bytes) -> Event:
        """Parse `body`'s output; refuses bytes that would not be the same again. Raises AuditChainBroken."""
        try:
            data = parse_canonical(body)
            _check_types(data)
            if data["format"] != FORMAT:
                raise AuditChainBroken(f"An audit event has format '{data['format']}'; this version reads {FORMAT}.")
            eps = data["epsilon_nano"]
            unit = data["unit"]
            event = cls(
                kind=data["kind"],
                subject=Subject(**data["subject"]),
                split=EpsilonSplit(
                    Epsilon(eps["clip"]), Epsilon(eps["prior"]), Epsilon(eps["randomize"]), parse_delta(data["delta"])
                ),
                unit=PrivacyUnit(unit["column"], unit["max_examples"]),
                audiences=tuple(data["audiences"]),
                actor=data["actor"],
                details=data["details"],
                store=data["store"],
                party=data["party"],
                sequence=data["sequence"],
                previous=data["previous"],
                time=data["time"],
            )
            same = event.body() == body
        except AuditChainBroken:
            raise
        except Exception:  # whatever a forged event breaks, the answer is the same
            raise AuditChainBroken("An audit event is malformed.") from None
        if not same:
            raise AuditChainBroken("An audit event is not in its canonical form.")
        return event


def _check_types(data: dict[str, Any]) -> None:
    """Check the types that `from_body` would accept unchecked. Raises any error, or AuditChainBroken."""
    subject, unit = data["subject"], data["unit"]
    texts = [data[n] for n in ("store", "party", "previous", "time", "kind", "actor", "delta")] + data["audiences"]
    optional = [subject[name] for name in ("population", "population_name", "label", "batch", "work")]
    column, most, attempt = unit["column"], unit["max_examples"], subject["attempt"]
    if (
        not all(isinstance(text, str) for text in [*texts, *(t for t in optional if t is not None)])
        or not isinstance(data["audiences"], list)
        or not isinstance(data["details"], dict)
        or not all(number is None or (type(number) is int and number >= 1) for number in (attempt, most))
        or not (column is None or isinstance(column, str))
        or type(data["sequence"]) is not int
        or not (TIME.fullmatch(data["time"]) and date.fromisoformat(data["time"]))
    ):
        raise AuditChainBroken("An audit event has a member of the wrong kind.")


def check_chain(bodies: Iterable[bytes]) -> tuple[int, str]:
    """Verify sequence numbers, links and one store id over all events in order; returns (count, head digest).

    Raises AuditChainBroken naming the first event that does not fit.
    """
    previous, count, store = GENESIS, 0, None
    for body in bodies:
        count += 1
        try:
            event = Event.from_body(body)
        except AuditChainBroken as broken:
            raise AuditChainBroken(f"Audit event {count}: {broken.detail}") from None
        if event.sequence != count:
            raise AuditChainBroken(
                f"Audit event {count} carries number {event.sequence}: events are missing or reordered."
            )
        if event.previous != previous:
            raise AuditChainBroken(f"Audit event {count} does not link to the event before it: the store was changed.")
        if store is not None and event.store != store:
            raise AuditChainBroken(f"Audit event {count} belongs to another audit store.")
        store, previous = event.store, digest(body)
    return count, previous
