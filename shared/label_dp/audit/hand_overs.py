"""Hand-overs in an audit store: of our own key at a labels party, of pinned keys at a receiver."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from label_dp.audit.events import KEY_HANDED_OVER, Event
from label_dp.documents.hand_over import HandOver, KeyFamilies
from label_dp.errors import AuditChainBroken, LabelDPError

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from label_dp.audit.store import AuditStore


def hand_over_event(envelope: dict[str, Any], actor: str) -> Event:
    """Build the event of a signed hand-over."""
    hand_over = HandOver.read(envelope)
    details = {"old_key_id": hand_over.old.id, "new_key_id": hand_over.new.id, "hand_over": envelope}
    return Event(KEY_HANDED_OVER, actor=actor, details=details)


def hand_over_of(event: Event) -> HandOver:
    """Read the hand-over of an event. Raises AuditChainBroken if it is invalid or of other keys than the event
    names."""
    try:
        hand_over = HandOver.read(event.details.get("hand_over"))
    except LabelDPError:
        raise AuditChainBroken(f"Audit event {event.sequence} holds no signed hand-over.") from None
    if (hand_over.old.id, hand_over.new.id) != (event.details.get("old_key_id"), event.details.get("new_key_id")):
        raise AuditChainBroken(f"Audit event {event.sequence} holds the hand-over of another key than it names.")
    return hand_over


def hand_overs(events: Iterable[Event]) -> list[HandOver]:
    """List the hand-overs among `events`, in order. Raises AuditChainBroken."""
    return [hand_over_of(event) for event in events if event.kind == KEY_HANDED_OVER]


def families(connection: Connection, audit: AuditStore) -> KeyFamilies:
    """Group the keys in a store by labels party."""
    return KeyFamilies(hand_overs(audit.events(connection, kind=KEY_HANDED_OVER)))
