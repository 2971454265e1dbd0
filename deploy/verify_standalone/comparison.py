"""Two audit exports, each verified by itself: of one store at two times, or of both parties.

A chain does not show that its end was cut off, or that it is the only one. Another copy does.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from .envelope import canonical_bytes
from .exact import ATTO, NANO, units
from .receipts import ACCEPTED, PUBLISHED, Receipts
from .refusal import refuse

Verified = tuple[Any, Receipts]  # the export, and the receipts in it
ENDED = {"charge-returned", "release-failed", "answer-failed", "release-declined"}
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
    ours = {receipts.key_id}
    for event in [*reversed(events), *reversed(features[0]["events"]), *features[0]["events"]]:
        if event["kind"] == "key-handed-over":
            pair = {event["details"][f"{which}_key_id"] for which in ("old", "new")}
            ours |= pair if pair & ours else set()
    published = {e["subject"]["work"]: e for e in events if e["kind"] in PUBLISHED}
    ended = {e["subject"]["work"] for e in events if e["kind"] in ENDED}
    returned = {e["subject"]["work"] for e in events if e["kind"] == "charge-returned"}
    declared = {e["subject"]["population"]: e["details"] for e in events if e["kind"] == "population-created"}
    charges, spent = dict[str, Any](), defaultdict[str, list[int]](lambda: [0, 0])
    for event in events:
        if event["kind"] == "release-charged" and (work := event["subject"]["work"]) not in returned:
            sums = spent[event["subject"]["batch"]]
            sums[0] += event["epsilon_nano"]["total"]
            sums[1] += units(event["delta"], ATTO, "δ")
            charges[work] = event, tuple(sums)
    compared, newer, restored = 0, 0, 0
    for event in features[0]["events"]:
        if event["kind"] not in ACCEPTED or event["details"]["key_id"] not in ours:
            continue
        work, details = event["subject"]["work"], event["details"]
        if work not in published and work not in ended and _later(event["time"], labels[0]):
            newer += 1
            continue
        if work not in published:
            refuse(f"{work}, accepted {event['time']}, is not among what the labels party published")
        publication = published[work]
        if publication["details"][PUBLISHED[publication["kind"]]] != details[ACCEPTED[event["kind"]]]:
            refuse(f"{work} is another document at the labels party than the one that was accepted")
        charge, sums = charges.get(work, (None, (0, 0)))
        if charge is None or _about(charge) != _about(event) or not set(event["audiences"]) <= set(charge["audiences"]):
            refuse(f"{work} is charged otherwise at the labels party than it was accepted")
        totals = [details[f"{what}_{when}"] for when in ("spent", "lifetime") for what in ("epsilon", "delta")]
        lives = [declared[event["subject"]["population"]].get(f"lifetime_{what}", "0") for what in ("epsilon", "delta")]
        if units(totals[0], NANO, "ε") < sums[0] or units(totals[1], ATTO, "δ") < sums[1] or totals[2:] != lives:
            refuse(f"{work} states another lifetime, or less spent than was charged by then")
        head, takeover = details.get("chain_head"), "restored" in publication["details"]
        restored += takeover  # taken over from the receiver: the head is of a lost history
        if takeover:
            same = isinstance(head, dict) and head == publication["details"]["restored"]
        else:
            same = canonical_bytes(head) in receipts.heads and charge["time"] <= head["day"] <= publication["time"]
        if not same:
            refuse(f"{work} states another head of the labels party's chain: it has two histories")
        compared += 1
    words = f"{compared} accepted releases and answers are published and charged alike (rule 19); {newer} may be newer"
    return words + (f"; {restored} were taken over by a restore: their heads are of a lost history" if restored else "")


def _about(event: Any) -> list[Any]:
    subject = {name: value for name, value in event["subject"].items() if name != "attempt"}
    return [subject, event["epsilon_nano"], event["delta"], event["unit"]]


def _later(time: str, export: Any) -> bool:
    """Whether what happened on that day may have come after an export: it has no event of a later day."""
    last = export["events"][-1]["time"] if export["events"] else ""
    return bool(time >= max(export["made"][:10], last))


def _lists(labels: Verified, features: Verified) -> str:
    """Of the receiver's list both sides have the same receipts, as far as both have it."""
    same, missing, gone = 0, 0, 0
    for (receiver, labels_key), kept in labels[1].kept.items():
        given = features[1].given.get(labels_key, []) if receiver == features[1].key_id else None
        for place, (digest, _, time) in kept.items() if given is not None else ():
            if place > len(given or ()):
                gone += labels[0]["made"] <= features[0]["made"] or not _later(time, features[0])
                missing += 1
            elif (given or [])[place - 1] != digest:
                refuse(f"receipt {place} is another one at the receiver: its store has two histories")
            else:
                same += 1
    if gone:
        refuse(f"{gone} receipts that the labels party holds are not in the receiver's store: it was rolled back")
    return f"{same} receipts are the same at both parties; {missing} came after the receiver's export"
