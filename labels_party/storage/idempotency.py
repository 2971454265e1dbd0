"""Idempotency keys: scoped to the API key, with a keyed MAC of the body, committed together with their effect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from labels_party.storage.tables import idempotency
from shared.errors import IdempotencyConflict, InvalidInput

MAX_KEY = 200
Answer = tuple[int, dict[str, Any]]


@dataclass(frozen=True)
class IdempotentCall:
    """One call with an `Idempotency-Key`; `key` None means the caller gave none."""

    caller: str
    key: str | None
    body_mac: str

    def __post_init__(self) -> None:
        if self.key is not None and not (1 <= len(self.key) <= MAX_KEY and self.key.isprintable()):
            raise InvalidInput(f"An Idempotency-Key is 1 to {MAX_KEY} printable characters.")

    def earlier(self, connection: Connection) -> Answer | None:
        """The answer given before to the same call. Raises IdempotencyConflict if the body was another one."""
        if self.key is None:
            return None
        t = idempotency
        row = connection.execute(sa.select(t).where(t.c.caller == self.caller, t.c.key == self.key)).first()
        if row is None:
            return None
        if row.body_mac != self.body_mac:
            raise IdempotencyConflict(
                "This Idempotency-Key was used with another request; use a new key for a new request."
            )
        return row.status, row.answer

    def once(self, connection: Connection, effect: Callable[[], Answer]) -> Answer:
        """The earlier answer, or the effect's, remembered in the same transaction."""
        earlier = self.earlier(connection)
        if earlier is not None:
            return earlier
        status, answer = effect()
        if self.key is not None:
            connection.execute(
                sa.insert(idempotency).values(
                    caller=self.caller, key=self.key, body_mac=self.body_mac, status=status, answer=answer
                )
            )
        return status, answer


NO_KEY = IdempotentCall("", None, "")
