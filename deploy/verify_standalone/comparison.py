"""Two audit exports, each verified by itself: of one store at two times, or of both parties.

A chain does not show that its end was cut off, or that it is the only one. Another copy does.
"""

from __future__ import annotations

from typing import Any

from .envelope import canonical_bytes
from .receipts import ACCEPTED, PUBLISHED, Receipts
from .refusal import refuse

Verified = tuple[Any, Receipts]  # the export, and the receipts in it
PARTIES = {"labels-party", "features-party"}


def compare(one: Verified, other: Verified) -> list[str]:
    """What agrees, a line each; refused with the first of what does not."""
    parties = {one[0]["party"], other[0]["party"]}
    if len(parties) == 1:
        return _one_store(one[0]["events"], other[0]["events"])
    if parties != PARTIES:
        refuse("the exports are of other parties than a labels party and a features party")
    labels, features = (one, other) if one[0]["party"] == "labels-party" else (other, one)
    return [_works(labels, features), _lists(labels, features)]


def _one_store(one: list[Any], other: list[Any]) -> list[str]:
    """The shorter one is the beginning of the longer one."""
    if one and other and one[0]["store"] != other[0]["store"]:
        refuse("the exports are of two audit stores: one was replaced by a new one")
    for number, pair in enumerate(zip(one, other, strict=False), start=1):
        if canonical_bytes(pair[0]) != canonical_bytes(pair[1]):
            refuse(f"from event {number} on the exports have different histories")
    return [f"{min(len(one), len(other))} events agree; {abs(len(one) - len(other))} more in the longer export"]


def _works(labels: Verified, features: Verified) -> str:
    """What was accepted under a key of the labels party was published, charged alike, with the same digest."""
    events, receipts = labels[0]["events"], labels[1]
    ours = {receipts.key_id, *(e["details"]["old_key_id"] for e in events if e["kind"] == "key-handed-over")}
    published = {e["subject"]["work"]: e["details"][PUBLISHED[e["kind"]]] for e in events if e["kind"] in PUBLISHED}
    charged = {e["subject"]["work"]: e for e in events if e["kind"] == "release-charged"}
    for event in events:
        if event["kind"] == "charge-returned":
            charged.pop(event["subject"]["work"], None)
    compared, newer = 0, 0
    for event in features[0]["events"]:
        if event["kind"] not in ACCEPTED or event["details"]["key_id"] not in ours:
            continue
        work = event["subject"]["work"]
        if work not in published and event["time"] >= labels[0]["made"][: len(event["time"])]:
            newer += 1  # it may have come after the labels party's export was made
            continue
        if work not in published:
            refuse(f"{work}, accepted {event['time']}, is not among what the labels party published")
        if published[work] != event["details"][ACCEPTED[event["kind"]]]:
            refuse(f"{work} is another document at the labels party than the one that was accepted")
        charge = charged.get(work)
        about = ("epsilon_nano", "delta", "unit")
        if charge is None or any(charge[name] != event[name] for name in about):
            refuse(f"{work} is charged otherwise at the labels party than it was accepted")
        compared += 1
    return f"{compared} accepted releases and answers are published and charged alike (rule 19); {newer} may be newer"


def _lists(labels: Verified, features: Verified) -> str:
    """Of the receiver's list both sides have the same receipts, as far as both have it."""
    same, missing = 0, 0
    for (receiver, labels_key), kept in labels[1].kept.items():
        given = features[1].given.get(labels_key, []) if receiver == features[1].key_id else None
        for place, (digest, _) in kept.items() if given is not None else ():
            if place > len(given or ()):
                missing += 1
            elif (given or [])[place - 1] != digest:
                refuse(f"receipt {place} is another one at the receiver: its store has two histories")
            else:
                same += 1
    if missing and labels[0]["made"] <= features[0]["made"]:
        refuse(f"{missing} receipts that the labels party holds are not in the receiver's store: it was rolled back")
    return f"{same} receipts are the same at both parties; {missing} came after the receiver's export"
