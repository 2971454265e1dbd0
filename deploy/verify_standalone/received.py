"""The rules of what a receiver accepted: once, of one declaration, within what is stated as spent, and of keys that
handed over to each other."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from .document import check_format
from .envelope import canonical_bytes, open_envelope, parse, strict_base64
from .exact import ATTO, NANO, units
from .members import link, members, moment
from .refusal import RefusedError, refuse

HAND_OVER_TYPE = "application/vnd.label-dp.hand-over+json"
MEMBERS = {"format", "old_key", "new_key", "day", "position", "previous", "consent"}
MOST = 8192  # bytes of the envelope
Amount = Callable[[object, int], int | None]


class HandOvers:
    """`add` takes the details of the events one by one; `party` is the key with which the party of a key began."""

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self.retired: set[str] = set()
        self.led: dict[str, tuple[int, str]] = {}  # place and digest of the hand-over to a key
        self.first: dict[str, str] = {}

    def party(self, key: str) -> str:
        """Of a key that something was accepted of."""
        self.keys.add(key)
        return self.first.get(key, key)

    def add(self, details: Any) -> str | None:
        """Why the hand-over breaks the rule; None where it keeps it."""
        try:
            document, digest = open_hand_over(details.get("hand_over"))
            old, new = (key_id(strict_base64(document[f"{which}_key"])) for which in ("old", "new"))
        except RefusedError:
            return "it holds no signed hand-over"
        if (old, new) != (details.get("old_key_id"), details.get("new_key_id")):
            return "it holds the hand-over of another key than it names"
        place, before = self.led.get(old, (document["position"] - 1, document["previous"]))
        if old in self.retired or new in self.keys or new == old:
            return "its key had handed over before, or its next key is not new"
        if (document["position"], document["previous"]) != (place + 1, before):
            return "it does not follow the hand-over to its key"
        self.keys |= {old, new}
        self.retired.add(old)
        self.led[new] = document["position"], digest
        self.first[new] = self.first.get(old, old)
        return None


def key_id(raw: bytes) -> str:
    """Return the id of a raw public key."""
    return "ed25519:" + hashlib.sha256(raw).hexdigest()


def open_hand_over(envelope: Any) -> tuple[Any, str]:
    """(the members, the SHA-256 of the payload), signed by the old key and agreed to by the new one."""
    try:
        data = canonical_bytes(envelope)
        raw = parse(strict_base64(envelope["payload"]), "the hand-over")["old_key"]
        key = public(raw)
    except (KeyError, TypeError, ValueError):
        refuse("a hand-over is no signed document")
    if len(data) > MOST:
        refuse("a hand-over is too large")
    payload = open_envelope(data, key, key_id(strict_base64(raw)), HAND_OVER_TYPE)
    document = parse(payload, "the hand-over")
    members(document, MEMBERS, "the hand-over")
    check_format(document, "label-dp-hand-over")
    moment(document["day"], "the day of a hand-over")
    link(document, "a hand-over")
    new = public(document["new_key"])
    agreed_bytes = canonical_bytes({name: value for name, value in document.items() if name != "consent"})
    kind = HAND_OVER_TYPE.encode()
    try:
        new.verify(
            strict_base64(document["consent"]),
            b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(agreed_bytes), agreed_bytes),
        )
    except InvalidSignature:
        refuse("the new key of a hand-over did not agree to it")
    return document, hashlib.sha256(payload).hexdigest()


def public(text: Any) -> Ed25519PublicKey:
    """Parse a public key in base64, or refuse."""
    raw = strict_base64(text)
    if len(raw) != 32:
        refuse("a key has 32 bytes")
    return Ed25519PublicKey.from_public_bytes(raw)


class ReceivedRules:
    """`add` gives the number of the rule that an acceptance breaks, and why; None: none."""

    def __init__(self) -> None:
        self.items: set[tuple[str, str, str]] = set()
        self.declared: dict[tuple[str, str], Any] = {}
        self.population: dict[tuple[str, str], str] = {}
        # (stated, cost) of every item of a batch: of ε and of δ
        self.held: dict[tuple[str, str], tuple[list[tuple[int, int]], list[tuple[int, int]]]] = {}

        self.hand_overs = HandOvers()

    def hand_over(self, details: Any) -> str | None:
        """Why the hand-over of a key breaks its rule; None: it does not."""
        return self.hand_overs.add(details)

    def add(self, event: Any, amount: Amount) -> tuple[int, str] | None:
        subject, details = event["subject"], event["details"]
        key, population, batch, name = (details.get("key_id"), subject["population"], subject["batch"], subject["work"])
        if not isinstance(key, str) or not (name and batch and population):
            return 16, "it does not say what was accepted"
        key = self.hand_overs.party(key)
        if (key, event["kind"], name) in self.items:
            return 16, "it was accepted before"
        self.items.add((key, event["kind"], name))
        said = [subject["population_name"], subject["label"], event["unit"]]
        said += [details.get("epsilon_lifetime"), details.get("delta_lifetime", "0")]
        if self.declared.setdefault((key, population), said) != said:
            return 17, "its population was declared otherwise"
        if self.population.setdefault((key, batch), population) != population:
            return 17, "its batch was of another population"
        return self._stated(event, (key, batch), amount)

    def _stated(self, event: Any, place: tuple[str, str], amount: Amount) -> tuple[int, str] | None:
        details = event["details"]
        spent, life = (amount(details.get(f"epsilon_{what}"), NANO) for what in ("spent", "lifetime"))
        spent_delta, life_delta = (amount(details.get(f"delta_{what}", "0"), ATTO) for what in ("spent", "lifetime"))
        if spent is None or life is None or spent_delta is None or life_delta is None:
            return 18, "what it states is no canonical number"
        items = self.held.setdefault(place, ([], []))
        items[0].append((spent, event["epsilon_nano"]["total"]))
        items[1].append((spent_delta, units(event["delta"], ATTO, "δ")))
        if spent > life or spent_delta > life_delta or not all(map(within, items)):
            return 18, "the items of its batch add up to more than is stated as spent"
        return None


def within(items: list[tuple[int, int]]) -> bool:
    """Whether, for every stated sum, the items that state at most it add up to at most it."""
    upto = 0
    for stated, cost in sorted(items):
        upto += cost
        if upto > stated:
            return False
    return True
