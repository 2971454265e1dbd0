"""The audit event, format `label-dp-audit/1`: canonical JSON, chained by SHA-256.

The bytes are hashed and signed, so this format cannot change cheaply. Every member is always present; what does not
apply is null (subjects), 0 (charges) or empty (lists). Charges are whole nano-ε, rounded up; δ is a decimal string.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from label_dp.documents.canonical import canonical_bytes, digest, parse_canonical
from label_dp.errors import AuditChainBroken
from label_dp.privacy import PER_EXAMPLE, Delta, Epsilon, EpsilonSplit, PrivacyUnit, delta_string, parse_delta

FORMAT = "label-dp-audit/1"
GENESIS = "0" * 64
DAY = 10  # characters of a day in a time
TIME = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)  # a day: that is what others may see of when it was

# kinds of events; only those in CHARGES add to what an example has spent
CREATED = "store-created"
POPULATION_CREATED = "population-created"
BATCH_SEALED = "batch-sealed"
REQUESTED = "release-requested"  # in a four-eyes population: nothing is charged until somebody else approves
APPROVED = "release-approved"
DECLINED = "release-declined"
CANCELLED = "release-cancelled"
CHARGED = "release-charged"
PUBLISHED = "release-published"
FAILED = "release-failed"
RETURNED = "charge-returned"  # only where no draw was made: its ε is taken off what the batch has spent
ACCEPTED = "message-accepted"
SECOND_REFUSED = "second-document-refused"  # another manifest or answer, validly signed, under an id accepted before
DOCUMENT_REFUSED = "document-refused"  # validly signed, but it contradicts what was accepted before
TRAINED = "model-trained"
BUDGET_ALERT = "budget-alert"  # a charge made a batch reach a share of the lifetime ε that its population names
BATCH_PURGED = "batch-purged"
ERASURE_REQUESTED = "erasure-requested"
ERASED = "label-erased"
RECEIPT_KEY = "receipt-key-registered"  # the owner says with which key an audience signs its receipts
RECEIVED = "receipt-received"  # of work that an audience accepted; its `details` hold the signed receipt
# a charged computation other than a release: `details` name its kind
ANSWER_PUBLISHED = "answer-published"
ANSWER_SHARED = "answer-shared"  # its audience asked what was answered before, at no charge
ANSWER_FAILED = "answer-failed"  # its charge is kept
ANSWER_ACCEPTED = "answer-accepted"
ALLOWANCE_SET = "allowance-set"  # the owner says how much ε audiences may cause to be charged by answers of a kind
PREDICTOR_CREATED = "predictor-created"  # charges nothing: its queries do
PREDICTOR_RETIRED = "predictor-retired"  # by its owner: what it learned is deleted
KEY_HANDED_OVER = "key-handed-over"  # of a labels party, by the old key; `details` hold the signed hand-over
CHARGES = frozenset({CHARGED, ACCEPTED, ANSWER_ACCEPTED})
OF_LABELS_PARTY = (
    *(CREATED, POPULATION_CREATED, BATCH_SEALED, REQUESTED, APPROVED, DECLINED, CANCELLED, CHARGED, PUBLISHED, FAILED),
    *(RETURNED, BUDGET_ALERT, BATCH_PURGED, ERASURE_REQUESTED, ERASED, RECEIPT_KEY, RECEIVED, ANSWER_PUBLISHED),
    *(ANSWER_SHARED, ANSWER_FAILED, ALLOWANCE_SET, PREDICTOR_CREATED, PREDICTOR_RETIRED, KEY_HANDED_OVER),
)
OF_FEATURES_PARTY = (CREATED, ACCEPTED, ANSWER_ACCEPTED, SECOND_REFUSED, DOCUMENT_REFUSED, TRAINED, KEY_HANDED_OVER)
KINDS = tuple(dict.fromkeys((*OF_LABELS_PARTY, *OF_FEATURES_PARTY)))


@dataclass(frozen=True)
class Subject:
    """Whom an event is about; all ids are public."""

    population: str | None = None
    population_name: str | None = None
    label: str | None = None
    batch: str | None = None
    work: str | None = None
    attempt: int | None = None

    def as_json(self) -> dict[str, Any]:
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
    """What a labels party states with an item: what each example of its batch has spent by then, and the lifetimes."""

    spent: Epsilon
    lifetime: Epsilon
    spent_delta: Delta
    lifetime_delta: Delta


@dataclass(frozen=True)
class Event:
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
    time: str = ""  # the UTC day: what others may see of when it was
    at: str = ""  # the second, for the store's own party; it is neither hashed nor exported

    @property
    def moment(self) -> str:
        """As exactly as this store knows when it was."""
        return self.at or self.time

    @cached_property
    def account(self) -> StatedAccount:
        """What the labels party stated with an accepted item. Raises InvalidEpsilon for all but the one spelling."""
        spent, lifetime = (Epsilon.canonical(self.details.get(f"epsilon_{what}")) for what in ("spent", "lifetime"))
        # messages of a population without a lifetime δ do not state one
        spent_delta, lifetime_delta = (
            Delta.canonical(self.details.get(f"delta_{what}", "0")) for what in ("spent", "lifetime")
        )
        return StatedAccount(spent, lifetime, spent_delta, lifetime_delta)

    @property
    def limit(self) -> str | None:
        """What a charge counts against beside the lifetime: a predictor, whose cap it is, or a kind of answer, of which
        audiences have an allowance. A charge restored by a receiver's record may be either, so it counts as both."""
        if self.kind != CHARGED:
            return None
        if "predictor" in self.details:
            return str(self.details["predictor"])
        if self.details.get("by_audience") is not None or "restored" in self.details:
            return str(self.details.get("answer"))
        return None

    def as_json(self) -> dict[str, Any]:
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
        """In its place; `time` is a UTC time, of which the day is hashed."""
        at = time if len(time) > DAY else ""
        return replace(self, store=store, party=party, sequence=sequence, previous=previous, time=time[:DAY], at=at)

    @classmethod
    def from_body(cls, body: bytes) -> Event:
        """Inverse of `body`; refuses anything whose bytes would not be the same again. Raises AuditChainBroken."""
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
    """What `from_body` would take as it stands. Raises whatever comes, or AuditChainBroken."""
    subject, unit = data["subject"], data["unit"]
    texts = [
        *(data[name] for name in ("store", "party", "previous", "time", "kind", "actor", "delta")),
        *data["audiences"],
    ]
    optional = [subject[name] for name in ("population", "population_name", "label", "batch", "work")]
    column, most, attempt = unit["column"], unit["max_examples"], subject["attempt"]
    if (
        not all(isinstance(text, str) for text in [*texts, *(t for t in optional if t is not None)])
        or not isinstance(data["audiences"], list)
        or not isinstance(data["details"], dict)
        or not all(number is None or (type(number) is int and number >= 1) for number in (attempt, most))
        or not (column is None or isinstance(column, str))
        or type(data["sequence"]) is not int
        or TIME.fullmatch(data["time"]) is None
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
