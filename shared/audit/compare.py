"""`audit verify --against EXPORT`: this party's store against an older export of its own, or the other party's.

A chain shows that nothing inside it was changed, not that its end was cut off or that it is the only one. Another copy
shows that: an older export of the same store must be a prefix of it; releases and receipts must stand at both parties.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shared.audit.events import ANSWER_ACCEPTED, ANSWER_PUBLISHED, CHARGED, Event
from shared.audit.receipts import Receipts
from shared.audit.show import counted
from shared.audit.store import Export
from shared.message.signing import VerifyingKey

ROLLBACK, FORK, ALTERED = "rollback", "fork", "altered"
MISSING_RELEASE, MISSING_RECEIPT = "missing-release", "missing-receipt"


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
    """Releases and receipts of one labels party and one receiver; either side may be this party.

    Both chains must have been verified. Raises AuditChainBroken where a receipt in them does not verify.
    """
    found = Comparison()
    at_labels, at_features = Receipts.of(labels.events, labels.key), Receipts.of(features.events, features.key)
    charged = {e.subject.release: e for e in labels.events if e.kind == CHARGED}
    own = {release: e for (key_id, release), e in at_features.accepted.items() if key_id == labels.key.id}
    newer, missing = 0, set()
    for release, event in own.items():
        published = at_labels.published.get(release)
        if published is None and labels.may_lack(event.time):
            newer += 1
        elif published is None:
            missing.add(release)
            found.find(
                MISSING_RELEASE,
                f"Release {release}, accepted {event.time} (event {event.sequence} of {features.called}), is not "
                f"among the published ones of {labels.called}: that store was rolled back, forked or lost events.",
                release=release,
            )
        elif published.details.get("manifest_sha256") != event.details.get("manifest_digest"):
            found.find(
                ALTERED,
                f"Release {release} has another manifest in {labels.called} than in {features.called}.",
                release=release,
            )
        elif release in charged and charged[release].split != event.split:
            found.find(
                ALTERED,
                f"Release {release} is charged ε {charged[release].split.total} in {labels.called}, but "
                f"{event.split.total}, or another split of it, in {features.called}.",
                release=release,
            )
    newer += _answers(found, labels, features, charged)
    newer += _receipts(found, labels, features, at_labels, at_features, missing)
    if newer:
        # its party states the time: an old one hides what should be there, so it is shown
        made = labels.made or features.made
        found.notes.append(f"{newer} of the releases and receipts came after {made}, when the export says it was made")
    name = features.events[0].party if features.events else ""
    waiting = [r for r, e in at_labels.published.items() if name in e.audiences and r not in own]
    if waiting:
        found.notes.append(f"{counted(len(waiting), 'published release')} not accepted by '{name}' (perhaps not yet)")
    return found


def _answers(found: Comparison, labels: Side, features: Side, charged: dict[str | None, Event]) -> int:
    """Answers that the receiver accepted, as the labels party has them; returns how many are newer than the export."""
    published = {e.subject.release: e for e in labels.events if e.kind == ANSWER_PUBLISHED}
    newer = 0
    for event in (e for e in features.events if e.kind == ANSWER_ACCEPTED):
        answer = event.subject.release
        if event.details.get("key_id") != labels.key.id:
            continue
        told = published.get(answer)
        if told is None and labels.may_lack(event.time):
            newer += 1
        elif told is None:
            found.find(
                MISSING_RELEASE,
                f"Answer {answer}, accepted {event.time} (event {event.sequence} of {features.called}), is not among "
                f"the published ones of {labels.called}: that store was rolled back, forked or lost events.",
                release=answer,
            )
        elif told.details.get("sha256") != event.details.get("document_digest"):
            found.find(
                ALTERED,
                f"Answer {answer} is another document in {labels.called} than in {features.called}.",
                release=answer,
            )
        elif answer in charged and charged[answer].split != event.split:
            found.find(
                ALTERED,
                f"Answer {answer} is charged ε {charged[answer].split.total} in {labels.called}, but "
                f"{event.split.total}, or another split of it, in {features.called}.",
                release=answer,
            )
    return newer


def _receipts(
    found: Comparison, labels: Side, features: Side, at_labels: Receipts, at_features: Receipts, missing: set[str]
) -> int:
    """The receiver's list as each side has it; returns how many entries are newer than the export."""
    given, kept = at_features.given[labels.key.id], at_labels.received[features.key.id, labels.key.id]
    newer = 0
    forked = next((p for p in sorted(kept) if p in given and kept[p] != given[p]), None)
    if forked is not None:
        found.find(
            FORK,
            f"Receipt {forked} is of release {kept[forked].release} (accepted {kept[forked].accepted}) in "
            f"{labels.called}, but of {given[forked].release} (accepted {given[forked].accepted}) in "
            f"{features.called}: the receiver's store has two histories.",
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
        if (labels.key.id, receipt.release) not in at_features.accepted:
            found.find(
                MISSING_RELEASE,
                f"Release {receipt.release} has a receipt of {receipt.accepted} in {labels.called}, but is not "
                f"among the accepted ones of {features.called}.",
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
                f"Receipt {position} (release {receipt.release}, accepted {receipt.accepted}) is not in "
                f"{labels.called}: it was not delivered yet (the next pull delivers it), or was lost there.",
                release=receipt.release,
                receipt=position,
            )
    return newer
