"""`audit verify --against EXPORT`: a party's store against an older export of its own, or the other party's.

A chain shows that nothing inside it was changed, not that its end was cut off or that it is the only one. Another copy
shows that: an older export of the same store must be a prefix of it; releases, answers and receipts must be in both
parties' stores.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

from label_dp.audit import events as kinds
from label_dp.audit.events import Event
from label_dp.audit.hand_overs import hand_overs
from label_dp.audit.receipts import ANSWER, RELEASE, ReceiptChain, signed_digest, stated_head
from label_dp.audit.rulebook import MATCHED
from label_dp.audit.show import counted
from label_dp.audit.store import Export
from label_dp.documents.hand_over import KeyFamilies
from label_dp.documents.receipt import Receipt
from label_dp.documents.signing import VerifyingKey

ROLLBACK, FORK, ALTERED = "rollback", "fork", "altered"
MISSING_WORK, MISSING_RECEIPT = "missing-work", "missing-receipt"
UNMATCHED = "unmatched"  # MATCHED is broken: acceptance and charge differ
# after these nothing is published
WITHOUT_PUBLICATION = {kinds.RETURNED, kinds.FAILED, kinds.ANSWER_FAILED, kinds.DECLINED}
ANOTHER = {RELEASE: "has another manifest", ANSWER: "is another document"}


@dataclass
class StoreComparison:
    """Disagreements as findings, each with a sentence; notes are harmless differences."""

    findings: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def find(self, kind: str, sentence: str, **about: Any) -> None:
        self.findings.append({"kind": kind, "sentence": sentence} | about)


@dataclass(frozen=True)
class ComparedStore:
    """Events of a party, its key, a name for its store, and when the export was made ("": a live store)."""

    events: list[Event]
    key: VerifyingKey
    called: str
    made: str = ""

    def may_lack(self, time: str) -> bool:
        """Return whether an act at `time` may be newer than the export. The live party knows the second of its acts; an
        export states the second at which it was made, not before its last event's day."""
        return bool(self.made) and time > max(self.made, self.events[-1].time if self.events else "")


class Charges:
    """Charges of a labels party's chain without returned ones, for comparison with acceptances."""

    def __init__(self, events: list[Event]) -> None:
        returned = {e.subject.work for e in events if e.kind == kinds.RETURNED}
        self.ended = {e.subject.work for e in events if e.kind in WITHOUT_PUBLICATION}
        self.charged: dict[str | None, Event] = {}
        self.spent: dict[str | None, tuple[int, int]] = {}
        self.declared = {e.subject.population: e for e in events if e.kind == kinds.POPULATION_CREATED}
        sums: dict[str | None, tuple[int, int]] = defaultdict(lambda: (0, 0))
        for event in events:
            name, batch = event.subject.work, event.subject.batch
            if event.kind == kinds.CHARGED and name not in returned:
                nano, atto = sums[batch]
                sums[batch] = nano + event.split.total.nano, atto + event.split.delta_atto
                self.charged[name], self.spent[name] = event, sums[batch]

    def mismatch(self, accepted: Event) -> str:
        """Return why `accepted` differs from its charge; "" if it does not."""
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
        account = accepted.account
        enough = nano <= account.spent.nano and atto <= account.spent_delta.atto
        return "" if enough else "it states less spent than was charged by then"


def compare_own(own: list[Event], export: Export) -> StoreComparison:
    """Compare a store with an earlier export of it, which must be the store's beginning."""
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
    for event, exported in zip(own, then, strict=False):
        if event.digest != exported.digest:
            comparison.find(
                FORK,
                f"From event {event.sequence} on this party's store and the export have different histories "
                f"({event.kind} here, {exported.kind} there): the store went on from an older copy, or was changed.",
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
    """Compare releases, answers and receipts of a labels party and a receiver; either may be this party. Both chains
    must have been verified. Raises AuditChainBroken if a receipt in them does not verify."""
    comparison = StoreComparison()
    at_labels, at_features = ReceiptChain.of(labels.events, labels.key), ReceiptChain.of(features.events, features.key)
    ours = KeyFamilies(hand_overs([*labels.events, *features.events])).relatives(labels.key.id)
    at_home = KeyFamilies(hand_overs(labels.events)).relatives(labels.key.id)
    for event in (e for e in features.events if e.kind == kinds.KEY_HANDED_OVER and not labels.may_lack(e.moment)):
        if (key_id := event.details["new_key_id"]) in ours and key_id not in at_home:
            sentence = f"{features.called} followed a hand-over to key {key_id}, which {labels.called} lacks"
            comparison.find(ROLLBACK, f"{sentence}: the labels party's store was rolled back.", event=event.sequence)
    own = {(noun, name): e for (key_id, noun, name), e in at_features.accepted.items() if key_id in ours}
    newer, missing = _accepted(comparison, labels, features, at_labels, own)
    newer += sum(_receipts(comparison, labels, features, at_labels, at_features, missing, key_id) for key_id in ours)
    if newer:
        # the export's party states the time, and an old one would hide missing events: it is shown
        time = labels.made or features.made
        comparison.notes.append(
            f"{newer} of the releases, answers and receipts came after {time}, when the export says it was made"
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
    comparison: StoreComparison,
    labels: ComparedStore,
    features: ComparedStore,
    at_labels: ReceiptChain,
    accepted: dict[tuple[str, str], Event],
) -> tuple[int, set[str]]:
    """Compare accepted releases and answers with their charges and publications. Returns how many are newer than the
    export, and the missing ones."""
    charges = Charges(labels.events)
    newer, missing = 0, set()
    for (noun, name), event in accepted.items():
        publication, what = at_labels.published.get((noun, name)), f"{noun.capitalize()} {name}"
        if publication is None and labels.may_lack(event.moment) and name not in charges.ended:
            newer += 1
        elif publication is None:
            missing.add(name)
            comparison.find(
                MISSING_WORK,
                f"{what}, accepted {event.time} (event {event.sequence} of {features.called}), is not among the "
                f"published ones of {labels.called}: that store was rolled back, forked or lost events.",
                work=name,
            )
        elif signed_digest(publication) != signed_digest(event):
            comparison.find(ALTERED, f"{what} {ANOTHER[noun]} in {labels.called} than in {features.called}.", work=name)
        elif why := charges.mismatch(event):
            comparison.find(
                UNMATCHED,
                f"{what}, accepted for ε {event.split.total} in {features.called}, breaks rule {MATCHED.number} "
                f"({MATCHED.name}) in {labels.called}: {why}.",
                work=name,
                rule=MATCHED.number,
            )
        elif (head := stated_head(event)) and publication.details.get("restored") == head.model_dump():
            comparison.notes.append(f"{what} was taken over from a receiver by a restore, at ε {event.split.total}")
        elif "restored" in publication.details or not (
            at_labels.has_head(head) and charges.charged[name].time <= head.day <= publication.time
        ):
            comparison.find(
                FORK,
                f"{what} states another head of the labels party's chain ({head.day if head else 'none'}) than "
                f"{labels.called} has: its store has two histories, perhaps one for each receiver.",
                work=name,
            )
    return newer, missing


def _receipts(
    comparison: StoreComparison,
    labels: ComparedStore,
    features: ComparedStore,
    at_labels: ReceiptChain,
    at_features: ReceiptChain,
    missing: set[str],
    key_id: str,
) -> int:
    """Compare the receiver's list for one key of the labels party on both sides; returns how many entries are newer
    than the export."""
    issued, stored = at_features.given[key_id], at_labels.received[features.key.id, key_id]
    newer = 0

    def noun(receipt: Receipt) -> str:
        return at_labels.about(receipt) or at_features.about(receipt)

    forked = next((p for p in sorted(stored) if p in issued and stored[p] != issued[p]), None)
    if forked is not None:
        comparison.find(
            FORK,
            f"Receipt {forked} is of {noun(stored[forked])} {stored[forked].document_id} (accepted "
            f"{stored[forked].accepted}) in {labels.called}, but of {noun(issued[forked])} "
            f"{issued[forked].document_id} (accepted {issued[forked].accepted}) in {features.called}: "
            "the receiver's store has two histories.",
            receipt=forked,
        )
    receipts = [stored[p] for p in sorted(stored) if p not in issued]
    newer += sum(features.may_lack(at_labels.moments[r.digest]) for r in receipts)
    receipts = [r for r in receipts if not features.may_lack(at_labels.moments[r.digest])]
    if receipts:
        comparison.find(
            ROLLBACK,
            f"The receipts of {features.called} end at number {len(issued)}, but {labels.called} holds number "
            f"{receipts[-1].position} with its signature: the receiver's store was rolled back to an older copy.",
            receipt=receipts[-1].position,
        )
    for receipt in receipts + [stored[p] for p in sorted(stored) if p in issued and stored[p] != issued[p]]:
        if (key_id, noun(receipt), receipt.document_id) not in at_features.accepted:
            comparison.find(
                MISSING_WORK,
                f"{noun(receipt).capitalize()} {receipt.document_id} has a receipt of {receipt.accepted} in "
                f"{labels.called}, but is not among the accepted ones of {features.called}.",
                work=receipt.document_id,
            )
    if issued and not any(of == features.key.id for _, of in at_labels.keys):
        comparison.notes.append("the labels party has no receipt key of this receiver, so it keeps no receipts of it")
        return newer
    for position in sorted(set(issued) - set(stored)):
        receipt = issued[position]
        if labels.may_lack(at_features.moments[receipt.digest]):
            newer += 1
        elif receipt.document_id not in missing:
            comparison.find(
                MISSING_RECEIPT,
                f"Receipt {position} ({noun(receipt)} {receipt.document_id}, accepted {receipt.accepted}) is not in "
                f"{labels.called}: it was not delivered yet (the next pull delivers it), or was lost there.",
                work=receipt.document_id,
                receipt=position,
            )
    return newer
