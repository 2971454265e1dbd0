"""`audit verify --against EXPORT`: this party's store against an older export of its own, or the other party's.

A chain shows that nothing inside it was changed, not that its end was cut off or that it is the only one. Another copy
shows that: an older export of the same store must be a prefix of it; releases, answers and receipts must stand at both
parties.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

from label_dp.audit.events import (
    ANSWER_FAILED,
    CHARGED,
    DECLINED,
    FAILED,
    POPULATION_CREATED,
    RETURNED,
    Event,
)
from label_dp.audit.hand_overs import hand_overs
from label_dp.audit.receipts import ANSWER, RELEASE, ReceiptChain, signed_digest
from label_dp.audit.rulebook import MATCHED
from label_dp.audit.show import counted
from label_dp.audit.store import Export
from label_dp.documents.hand_over import KeyFamilies
from label_dp.documents.receipt import Receipt
from label_dp.documents.signing import VerifyingKey

ROLLBACK, FORK, ALTERED = "rollback", "fork", "altered"
MISSING_WORK, MISSING_RECEIPT = "missing-work", "missing-receipt"
UNMATCHED = "unmatched"  # MATCHED is broken: what was accepted is not what was charged
WITHOUT_PUBLICATION = frozenset({RETURNED, FAILED, ANSWER_FAILED, DECLINED})  # after these nothing is published
ANOTHER = {RELEASE: "has another manifest", ANSWER: "is another document"}


@dataclass
class StoreComparison:
    """What did not fit, each with a sentence; notes are what is as it may be."""

    findings: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def find(self, kind: str, sentence: str, **about: Any) -> None:
        self.findings.append({"kind": kind, "sentence": sentence} | about)


@dataclass(frozen=True)
class ComparedStore:
    """One party's events, its key, what to call its store, and when an export of it was made ("": it is live)."""

    events: list[Event]
    key: VerifyingKey
    called: str
    made: str = ""

    def may_lack(self, time: str) -> bool:
        """Whether something that the other side knew of at `time` may have come after the export was made: the live
        side knows the second of what it did and got, and an export says the second at which it was made, which is not
        before the day of its last event."""
        return bool(self.made) and time > max(self.made, self.events[-1].time if self.events else "")


class Charges:
    """What a labels party's chain has charged and not returned, for what a receiver accepted."""

    def __init__(self, events: list[Event]) -> None:
        returned = {e.subject.work for e in events if e.kind == RETURNED}
        self.ended = {e.subject.work for e in events if e.kind in WITHOUT_PUBLICATION}
        self.charged: dict[str | None, Event] = {}
        self.spent: dict[str | None, tuple[int, int]] = {}
        self.declared = {e.subject.population: e for e in events if e.kind == POPULATION_CREATED}
        sums: dict[str | None, tuple[int, int]] = defaultdict(lambda: (0, 0))
        for event in events:
            name, batch = event.subject.work, event.subject.batch
            if event.kind == CHARGED and name not in returned:
                nano, atto = sums[batch]
                sums[batch] = nano + event.split.total.nano, atto + event.split.delta_atto
                self.charged[name], self.spent[name] = event, sums[batch]

    def mismatch(self, accepted: Event) -> str:
        """Why `accepted` is not what was charged; "" where it is."""
        name, details = accepted.subject.work, accepted.details
        charge = self.charged.get(name)
        if charge is None:
            return "it is not charged there, or its charge was returned"
        if replace(charge.subject, attempt=None) != replace(accepted.subject, attempt=None):
            return f"it is charged to batch {charge.subject.batch} of population {charge.subject.population_name}"
        if charge.split != accepted.split:
            return f"it is charged ε {charge.split.total}, or another split of it"
        if not set(accepted.audiences) <= set(charge.audiences):
            return "it is charged for other audiences"
        declared = self.declared[charge.subject.population].details
        lifetimes = declared["lifetime_epsilon"], declared.get("lifetime_delta", "0")
        if charge.unit != accepted.unit or lifetimes != (
            details.get("epsilon_lifetime"),
            details.get("delta_lifetime", "0"),
        ):
            return "its population was declared with another unit or lifetime"
        nano, atto = self.spent[name]
        stated = accepted.account
        enough = nano <= stated.spent.nano and atto <= stated.spent_delta.atto
        return "" if enough else "it states less spent than was charged by then"


def compare_own(own: list[Event], export: Export) -> StoreComparison:
    """This party's store against an earlier export of it: the export must be the beginning of the store."""
    comparison, then = StoreComparison(), export.events
    if not then:
        comparison.notes.append("the export holds no event yet")
        return comparison
    if own and own[0].store != then[0].store:
        comparison.find(
            FORK,
            f"This party's audit store is {own[0].store}, the export is of its store {then[0].store}: the store was "
            "replaced by a new one.",
            event=1,
        )
        return comparison
    for event, theirs in zip(own, then, strict=False):
        if event.digest != theirs.digest:
            comparison.find(
                FORK,
                f"From event {event.sequence} on this party's store and the export have different histories "
                f"({event.kind} here, {theirs.kind} there): the store went on from an older copy, or was changed.",
                event=event.sequence,
            )
            return comparison
    if len(own) < len(then):
        comparison.find(
            ROLLBACK,
            f"This party's store ends at event {len(own)}, the export at event {len(then)} ({then[-1].kind}, "
            f"{then[-1].time}): the store was rolled back to an older copy, and what happened since is forgotten.",
            event=len(own),
        )
    elif len(own) > len(then):
        comparison.notes.append(f"{counted(len(own) - len(then), 'event')} came after the export")
    return comparison


def compare_parties(labels: ComparedStore, features: ComparedStore) -> StoreComparison:
    """Releases, answers and receipts of one labels party and one receiver; either side may be this party.

    Both chains must have been verified. Raises AuditChainBroken where a receipt in them does not verify.
    """
    comparison = StoreComparison()
    at_labels, at_features = ReceiptChain.of(labels.events, labels.key), ReceiptChain.of(features.events, features.key)
    ours = KeyFamilies(hand_overs(labels.events)).relatives(labels.key.id)
    own = {(noun, name): e for (key_id, noun, name), e in at_features.accepted.items() if key_id in ours}
    newer, missing = _accepted(comparison, labels, features, at_labels.published, own)
    newer += sum(_receipts(comparison, labels, features, at_labels, at_features, missing, key_id) for key_id in ours)
    if newer:
        # its party states the time: an old one hides what should be there, so it is shown
        made = labels.made or features.made
        comparison.notes.append(
            f"{newer} of the releases, answers and receipts came after {made}, when the export says it was made"
        )
    if others := len(at_features.accepted) - len(own):
        comparison.notes.append(
            f"not compared: {counted(others, 'accepted item')} of other keys than {labels.key.id}, which need exports "
            "signed with those"
        )
    name = features.events[0].party if features.events else ""
    waiting = Counter(key[0] for key, e in at_labels.published.items() if name in e.audiences and key not in own)
    for noun, count in sorted(waiting.items(), reverse=True):
        comparison.notes.append(f"{counted(count, f'published {noun}')} not accepted by '{name}' (perhaps not yet)")
    return comparison


def _accepted(
    found: StoreComparison,
    labels: ComparedStore,
    features: ComparedStore,
    published: dict[tuple[str, str], Event],
    accepted: dict[tuple[str, str], Event],
) -> tuple[int, set[str]]:
    """Releases and answers that the receiver accepted, as the labels party charged and published them.

    Returns how many are newer than the export, and which are missing.
    """
    charges = Charges(labels.events)
    newer, missing = 0, set()
    for (noun, name), event in accepted.items():
        told, what = published.get((noun, name)), f"{noun.capitalize()} {name}"
        if told is None and labels.may_lack(event.moment) and name not in charges.ended:
            newer += 1
        elif told is None:
            missing.add(name)
            found.find(
                MISSING_WORK,
                f"{what}, accepted {event.time} (event {event.sequence} of {features.called}), is not among the "
                f"published ones of {labels.called}: that store was rolled back, forked or lost events.",
                work=name,
            )
        elif signed_digest(told) != signed_digest(event):
            found.find(
                ALTERED,
                f"{what} {ANOTHER[noun]} in {labels.called} than in {features.called}.",
                work=name,
            )
        elif why := charges.mismatch(event):
            found.find(
                UNMATCHED,
                f"{what}, accepted for ε {event.split.total} in {features.called}, breaks rule {MATCHED.number} "
                f"({MATCHED.name}) in {labels.called}: {why}.",
                work=name,
                rule=MATCHED.number,
            )
    return newer, missing


def _receipts(
    found: StoreComparison,
    labels: ComparedStore,
    features: ComparedStore,
    at_labels: ReceiptChain,
    at_features: ReceiptChain,
    missing: set[str],
    key_id: str,
) -> int:
    """The receiver's list for one key of the labels party as each side has it; returns how many entries are newer than
    the export."""
    given, kept = at_features.given[key_id], at_labels.received[features.key.id, key_id]
    newer = 0

    def noun(receipt: Receipt) -> str:
        return at_labels.about(receipt) or at_features.about(receipt)

    forked = next((p for p in sorted(kept) if p in given and kept[p] != given[p]), None)
    if forked is not None:
        found.find(
            FORK,
            f"Receipt {forked} is of {noun(kept[forked])} {kept[forked].document_id} (accepted "
            f"{kept[forked].accepted}) in {labels.called}, but of {noun(given[forked])} "
            f"{given[forked].document_id} (accepted {given[forked].accepted}) in {features.called}: "
            "the receiver's store has two histories.",
            receipt=forked,
        )
    receipts = [kept[p] for p in sorted(kept) if p not in given]
    newer += sum(features.may_lack(at_labels.moments[r.digest]) for r in receipts)
    receipts = [r for r in receipts if not features.may_lack(at_labels.moments[r.digest])]
    if receipts:
        found.find(
            ROLLBACK,
            f"The receipts of {features.called} end at number {len(given)}, but {labels.called} holds number "
            f"{receipts[-1].position} with its signature: the receiver's store was rolled back to an older copy.",
            receipt=receipts[-1].position,
        )
    for receipt in receipts + [kept[p] for p in sorted(kept) if p in given and kept[p] != given[p]]:
        if (key_id, noun(receipt), receipt.document_id) not in at_features.accepted:
            found.find(
                MISSING_WORK,
                f"{noun(receipt).capitalize()} {receipt.document_id} has a receipt of {receipt.accepted} in "
                f"{labels.called}, but is not among the accepted ones of {features.called}.",
                work=receipt.document_id,
            )
    if given and not any(of == features.key.id for _, of in at_labels.keys):
        found.notes.append("the labels party has no receipt key of this receiver, so it keeps no receipts of it")
        return newer
    for position in sorted(set(given) - set(kept)):
        receipt = given[position]
        if labels.may_lack(at_features.moments[receipt.digest]):
            newer += 1
        elif receipt.document_id not in missing:
            found.find(
                MISSING_RECEIPT,
                f"Receipt {position} ({noun(receipt)} {receipt.document_id}, accepted {receipt.accepted}) is not in "
                f"{labels.called}: it was not delivered yet (the next pull delivers it), or was lost there.",
                work=receipt.document_id,
                receipt=position,
            )
    return newer
