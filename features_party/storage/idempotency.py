"""Idempotency keys: scoped to the API key, with a keyed MAC of the request; kept for a month, at most MOST for each API
key. After that a repeated call is a new one; it charges nothing, since nothing is charged here.

A call claims its key, has its effect, and keeps its answer. While it is in flight the same key is refused; a claim
whose process died runs out. A refusal gives the key back, so that the corrected circumstances can be tried again.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from features_party.storage.tables import idempotency as t
from shared.audit.store import Clock
from shared.errors import IdempotencyConflict, IdempotencyInFlight, InvalidInput
from shared.service.database import Database

MAX_KEY = 200
IN_FLIGHT_SECONDS = 1800.0  # longer than any upload or pull takes
KEPT = timedelta(days=30)
MOST = 10_000
Reply = tuple[int, dict[str, Any]]


@dataclass(frozen=True)
class Claim:
    """One call under its key. `answer` is what the same call was answered before; then there is nothing to do."""

    database: Database
    caller: str
    key: str | None
    holder: str = field(default_factory=lambda: secrets.token_hex(16))
    answer: Reply | None = None

    def keep(self, connection: Connection, status: int, answer: dict[str, Any]) -> None:
        """Remember the answer, in the caller's transaction."""
        if self.key is not None:
            values = {"status": status, "answer": answer, "claimed_until": None}
            connection.execute(sa.update(t).where(*self._mine()).values(**values))

    def keep_now(self, status: int, answer: dict[str, Any]) -> None:
        """Remember the answer of a call whose effect is no transaction of ours."""
        if self.key is not None:
            self.database.write("idempotency.keep", lambda c: self.keep(c, status, answer))

    def drop(self) -> None:
        """Give the key back: the call was refused and had no effect."""
        if self.key is not None:
            statement = sa.delete(t).where(*self._mine(), t.c.status.is_(None))
            self.database.write("idempotency.drop", lambda c: c.execute(statement) and None)

    def _mine(self) -> tuple[Any, ...]:
        return t.c.caller == self.caller, t.c.key == self.key, t.c.holder == self.holder


@dataclass(frozen=True)
class Idempotency:
    database: Database
    clock: Clock

    def claim(self, caller: str, key: str | None, body_mac: str) -> Claim:
        """Begin a call. Raises InvalidInput (key), IdempotencyConflict (another request had it), IdempotencyInFlight.

        `key` None means that the caller gave none: the claim then does nothing.
        """
        mine = Claim(self.database, caller, key)
        if key is None:
            return mine
        if not (1 <= len(key) <= MAX_KEY and key.isprintable()):
            raise InvalidInput(f"An Idempotency-Key is 1 to {MAX_KEY} printable characters.")
        now = self.clock()
        row = {
            "caller": caller,
            "key": key,
            "body_mac": body_mac,
            "holder": mine.holder,
            "claimed_until": now.timestamp() + IN_FLIGHT_SECONDS,
            "status": None,
            "answer": None,
            "created": f"{now:%Y-%m-%dT%H:%M:%SZ}",
        }
        old = f"{now - KEPT:%Y-%m-%dT%H:%M:%SZ}"

        def work(connection: Connection) -> Reply | None:
            connection.execute(sa.delete(t).where(t.c.created < old))
            found = connection.execute(sa.select(t).where(t.c.caller == caller, t.c.key == key)).first()
            if found is None:
                connection.execute(sa.insert(t).values(**row))
                self._make_room(connection, caller)
                return None
            if found.body_mac != body_mac:
                raise IdempotencyConflict(
                    "This Idempotency-Key was used with another request; use a new key for a new request."
                )
            if found.status is not None:
                return found.status, found.answer
            if found.claimed_until > now.timestamp():
                raise IdempotencyInFlight(
                    "The first call with this Idempotency-Key is not finished yet; repeat it in a moment."
                )
            connection.execute(sa.update(t).where(t.c.caller == caller, t.c.key == key).values(**row))
            return None

        earlier = self.database.write("idempotency.claim", work)
        return Claim(self.database, caller, key, mine.holder, earlier)

    @staticmethod
    def _make_room(connection: Connection, caller: str) -> None:
        """Forget the oldest answers of an API key; what is in flight stays."""
        own = (t.c.caller == caller, t.c.status.is_not(None))
        last = sa.select(t.c.created).where(*own).order_by(t.c.created.desc()).offset(MOST - 1).limit(1)
        connection.execute(sa.delete(t).where(*own, t.c.created < last.scalar_subquery()))
