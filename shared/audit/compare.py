"""`audit verify --against EXPORT`: this party's store against an older export of its own, or the other party's.

A chain shows that nothing inside it was changed, not that its end was cut off or that it is the only one. Another copy
shows that: an older export of the same store must be a prefix of it; releases, answers and receipts must stand at both
parties.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from shared.audit.events import CHARGED, Event
from shared.audit.receipts import ANSWER, RELEASE, Receipts, signed_digest
from shared.audit.show import counted
from shared.audit.store import Export
from shared.message.receipt import Receipt
from shared.message.signing import VerifyingKey

ROLLBACK, FORK, ALTERED = "rollback", "fork", "altered"
MISSING_RELEASE, MISSING_RECEIPT = "missing-release", "missing-receipt"
ANOTHER = {RELEASE: "has another manifest", ANSWER: "is another document"}


@dataclass
class Comparison:
    """What did not fit, each with a sentence; notes are what is as it may be."""

    findings: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def find(self, kind: str, sentence: str, **about: Any) -> None:
        self.findings.append({"kind": kind, "sentence": sentence} | about)


@dataclass(frozen=True)
class Side:
    """One party's events, its key, what to call its store, and when an export of it was made ("": it is live)."""

    events: list[Event]
    key: VerifyingKey
    called: str
    made: str = ""

    def may_lack(self, time: str) -> bool:
        """Whether something of `time` happened after the export was made, so that it cannot be in it."""
        return bool(self.made) and time > self.made


def compare_own(own: list[Event], export: Export) -> Comparison:
    """This party's store against an earlier export of it: the export must be the beginning of the store."""
    found, then = Comparison(), export.events
    if not then:
        found.notes.append("the export holds no event yet")
        return found
    if own and own[0].store != then[0].store:
        found.find(
            FORK,
            f"This party's audit store is {own[0].store}, the export is of its store {then[0].store}: the store was "
            "replaced by a new one.",
            event=1,
        )
        return found
    for mine, theirs in zip(own, then, strict=False):
        if mine.digest != theirs.digest:
            found.find(
                FORK,
                f"From event {mine.sequence} on this party's store and the export have different histories "
                f"({mine.kind} here, {theirs.kind} there): the store went on from an older copy, or was changed.",
                event=mine.sequence,
            )
            return found
    if len(own) < len(then):
        found.find(
            ROLLBACK,
            f"This party's store ends at event {len(own)}, the export at event {len(then)} ({then[-1].kind}, "
            f"{then[-1].time}): the store was rolled back to an older copy, and what happened since is forgotten.",
            event=len(own),
        )
    elif len(own) > len(then):
        found.notes.append(f"{counted(len(own) - len(then), 'event')} came after the export")
    return found


def compare_parties(labels: Side, features: Side) -> Comparison:
    """Releases, answers and receipts of one labels party and one receiver; either side may be this party.

    Both chains must have been verified. Raises AuditChainBroken where a receipt in them does not verify.
    """
    found = Comparison()
    at_labels, at_features = Receipts.of(labels.events, labels.key), Receipts.of(features.events, features.key)
    own = {(noun, name): e for (key_id, noun, name), e in at_features.accepted.items() if key_id == labels.key.id}
    newer, missing = _accepted(found, labels, features, at_labels.published, own)
    newer += _receipts(found, labels, features, at_labels, at_features, missing)
    if newer:
        # its party states the time: an old one hides what should be there, so it is shown
        made = labels.made or features.made
        found.notes.append(
            f"{newer} of the releases, answers and receipts came after {made}, when the export says it was made"
        )
    name = features.events[0].party if features.events else ""
    waiting = Counter(key[0] for key, e in at_labels.published.items() if name in e.audiences and key not in own)
    for noun, count in sorted(waiting.items(), reverse=True):
        found.notes.append(f"{counted(count, f'published {noun}')} not accepted by '{name}' (perhaps not yet)")
    return found


def _accepted(
    found: Comparison,
    labels: Side,
    features: Side,
    published: dict[tuple[str, str], Event],
    accepted: dict[tuple[str, str], Event],
) -> tuple[int, set[str]]:
    """Releases and answers that the receiver accepted, as the labels party has them.

    Returns how many are newer than the export, and which are missing.
    """
    charged = {e.subject.release: e for e in labels.events if e.kind == CHARGED}
    newer, missing = 0, set()
    for (noun, name), event in accepted.items():
        told, what = published.get((noun, name)), f"{noun.capitalize()} {name}"
        if told is None and labels.may_lack(event.time):
            newer += 1
        elif told is None:
            missing.add(name)
            found.find(
                MISSING_RELEASE,
                f"{what}, accepted {event.time} (event {event.sequence} of {features.called}), is not among the "
                f"published ones of {labels.called}: that store was rolled back, forked or lost events.",
                release=name,
            )
        elif signed_digest(told) != signed_digest(event):
            found.find(
                ALTERED,
                f"{what} {ANOTHER[noun]} in {labels.called} than in {features.called}.",
                release=name,
            )
        elif name in charged and charged[name].split != event.split:
            found.find(
                ALTERED,
                f"{what} is charged ε {charged[name].split.total} in {labels.called}, but {event.split.total}, "
                f"or another split of it, in {features.called}.",
                release=name,
            )
    return newer, missing


def _receipts(
    found: Comparison, labels: Side, features: Side, at_labels: Receipts, at_features: Receipts, missing: set[str]
) -> int:
    """The receiver's list as each side has it; returns how many entries are newer than the export."""
    given, kept = at_features.given[labels.key.id], at_labels.received[features.key.id, labels.key.id]
    newer = 0

    def noun(receipt: Receipt) -> str:
        return at_labels.about(receipt) or at_features.about(receipt)

    forked = next((p for p in sorted(kept) if p in given and kept[p] != given[p]), None)
    if forked is not None:
        found.find(
            FORK,
            f"Receipt {forked} is of {noun(kept[forked])} {kept[forked].release} (accepted {kept[forked].accepted}) in "
            f"{labels.called}, but of {noun(given[forked])} {given[forked].release} (accepted "
            f"{given[forked].accepted}) in {features.called}: the receiver's store has two histories.",
            receipt=forked,
        )
    lost = [kept[p] for p in sorted(kept) if p not in given]
    newer += sum(features.may_lack(r.accepted) for r in lost)
    lost = [r for r in lost if not features.may_lack(r.accepted)]
    if lost:
        found.find(
            ROLLBACK,
            f"The receipts of {features.called} end at number {len(given)}, but {labels.called} holds number "
            f"{lost[-1].position} with its signature: the receiver's store was rolled back to an older copy.",
            receipt=lost[-1].position,
        )
    for receipt in lost + [kept[p] for p in sorted(kept) if p in given and kept[p] != given[p]]:
        if (labels.key.id, noun(receipt), receipt.release) not in at_features.accepted:
            found.find(
                MISSING_RELEASE,
                f"{noun(receipt).capitalize()} {receipt.release} has a receipt of {receipt.accepted} in "
                f"{labels.called}, but is not among the accepted ones of {features.called}.",
                release=receipt.release,
            )
    if given and not any(key_id == features.key.id for _, key_id in at_labels.keys):
        found.notes.append("the labels party has no receipt key of this receiver, so it keeps no receipts of it")
        return newer
    for position in sorted(set(given) - set(kept)):
        receipt = given[position]
        if labels.may_lack(receipt.accepted):
            newer += 1
        elif receipt.release not in missing:
            found.find(
                MISSING_RECEIPT,
                f"Receipt {position} ({noun(receipt)} {receipt.release}, accepted {receipt.accepted}) is not in "
                f"{labels.called}: it was not delivered yet (the next pull delivers it), or was lost there.",
                release=receipt.release,
                receipt=position,
            )
    return newer
