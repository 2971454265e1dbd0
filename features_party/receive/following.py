"""Following a labels party from a pinned key to its present one, by hand-overs that each key signed.

The hand-over becomes an event of our audit store, so that documents accepted under both keys count as one labels
party's and their ε adds up. Then the new key is pinned. After a stop in between, following again pins it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from features_party.receive.pinned import PinnedKeys
from features_party.receive.pins import Pin
from label_dp.audit.events import KEY_HANDED_OVER
from label_dp.audit.hand_overs import hand_over_event, hand_overs
from label_dp.audit.rulebook import RuleBroken
from label_dp.audit.store import AuditStore
from label_dp.documents.hand_over import HandOver
from label_dp.documents.signing import VerifyingKey
from label_dp.errors import LabelDPError, MalformedHandOver, SignatureInvalid
from label_dp.moments import DAY
from label_dp.store.database import Database

MOST = 1000  # hand-overs of one labels party
AskHandOvers = Callable[[], dict[str, Any]]


@dataclass(frozen=True)
class Following:
    """Pinning of successor keys, with their hand-overs in the audit store."""

    database: Database
    audit: AuditStore
    pinned: PinnedKeys

    def key_for(self, envelope: bytes, ask: AskHandOvers, actor: str) -> VerifyingKey:
        """Return `PinnedKeys.for_envelope`; first follow the hand-overs that `ask` returns if the key is not pinned.
        Raises SignatureInvalid, MalformedHandOver as well."""
        if not self.pinned.lacks(envelope):
            return self.pinned.for_envelope(envelope)
        try:
            reply = ask()
        except LabelDPError:  # an earlier version has no such call, and then the refusal is about the key
            return self.pinned.for_envelope(envelope)
        self.follow(reply, actor)
        return self.pinned.for_envelope(envelope)

    def follow(self, reply: dict[str, Any], actor: str) -> list[Pin]:
        """Pin the keys that pinned ones handed over to, and return the new pins; repeating it changes nothing.

        Raises MalformedHandOver, and SignatureInvalid if a hand-over is forged, of a key that is no longer trusted, or
        names a second successor.
        """
        envelopes = reply.get("hand_overs") if isinstance(reply, dict) else None
        if not isinstance(envelopes, list) or len(envelopes) > MOST:
            raise MalformedHandOver("This is no list of signed hand-overs.")
        new: list[Pin] = []
        for envelope in envelopes:
            hand_over = HandOver.read(envelope)
            pins = {pin.key.id: pin for pin in self.pinned.pins()}
            old = pins.get(hand_over.old.id)
            if old is None or (old.successor == hand_over.new.id and hand_over.new.id in pins):
                continue  # from before we knew this labels party, or followed before
            self._require(hand_over, old, pins)
            self._record(hand_over, envelope, actor)
            today, handed = self.pinned.now(), {"handed_over": hand_over.day, "successor": hand_over.new.id}
            new.append(
                Pin(hand_over.new, old.name, old.url, today, actor, f"handed over by {old.key.id}", expires=old.expires)
            )
            new[-1].save(self.pinned.folder)
            replace(old, **handed).save(self.pinned.folder)  # type: ignore[arg-type]  # both are texts
        return new

    def _require(self, hand_over: HandOver, old: Pin, pins: dict[str, Pin]) -> None:
        today, state = self.pinned.now()[:DAY], old.state(self.pinned.now()[:DAY])
        ours = self.pinned.ours()
        why = (
            f"hands over from a key that is {state} here" if state in ("revoked", "expired")
            else f"names another key than {old.successor}, to which that key handed over before"
            if old.successor not in (None, hand_over.new.id)
            else "hands over to our own key" if ours is not None and ours.id == hand_over.new.id
            else "hands over to a key that is pinned here as another labels party's" if hand_over.new.id in pins
            else f"is of {hand_over.day}, which is to come" if hand_over.day > today
            else ""
        )  # fmt: skip
        if why:
            raise SignatureInvalid(f"The hand-over {why}. Nothing was pinned; ask the labels party about its key.")

    def _record(self, hand_over: HandOver, envelope: Any, actor: str) -> None:
        """Record the hand-over once."""

        def work(connection: Any) -> None:
            earlier = hand_overs(self.audit.events(connection, kind=KEY_HANDED_OVER))
            if hand_over.digest not in {one.digest for one in earlier}:
                self.audit.append(connection, hand_over_event(envelope, actor))

        try:
            self.database.write("key.hand-over", work)
        except RuleBroken as broken:
            raise SignatureInvalid(f"The hand-over does not fit. {broken.detail} Nothing was pinned.") from None
