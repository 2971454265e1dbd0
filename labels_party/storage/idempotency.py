"""Idempotency keys: scoped to the API key, with a keyed MAC of the body, committed together with their effect.

While the first call with a key is in flight its row is a claim: no answer yet, and a time until which nobody else
may answer, so that a server that died does not hold the key for ever.

How long: what began a computation that is charged (status 202) as long as its batch, whose labels are needed for a
second one, so that a repeated call never charges twice. Other calls about a batch as long as the batch, at most
MOST_OF_BATCH for each API key; all others KEPT_SECONDS, at most MOST for each API key. The oldest go first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from labels_party.storage.tables import idempotency
from shared.errors import IdempotencyConflict, IdempotencyInFlight, InvalidInput
from shared.service.database import Database

MAX_KEY = 200
CLAIM_SECONDS = 60.0
IN_FLIGHT = 0  # the status of a claim
CHARGING = 202  # of what begins a release, an answer or a predictor
KEPT_SECONDS = 30 * 86_400.0
MOST, MOST_OF_BATCH = 10_000, 100_000
Reply = tuple[int, dict[str, Any]]


@dataclass
class IdempotentCall:
    """One call with an `Idempotency-Key`; `key` None means the caller gave none.

    `body_mac` may be a function: it is asked only where the MAC is needed, and reads the rest of a streamed body.
    `batch` is the batch whose life the key shares.
    """

    caller: str
    key: str | None
    body_mac: str | Callable[[], str]
    batch: str | None = None
    claimed_until: float | None = None

    def __post_init__(self) -> None:
        if self.key is not None and not (1 <= len(self.key) <= MAX_KEY and self.key.isprintable()):
            raise InvalidInput(f"An Idempotency-Key is 1 to {MAX_KEY} printable characters.")

    def settle(self) -> str:
        """The MAC of the whole body; call it outside of transactions before `once`."""
        if not isinstance(self.body_mac, str):
            self.body_mac = self.body_mac()
        return self.body_mac

    def earlier(self, connection: Connection) -> Reply | None:
        """The answer given before to the same call. Raises IdempotencyConflict if the body was another one,
        IdempotencyInFlight while another call with this key is being answered."""
        if self.key is None:
            return None
        row = self._row(connection)
        if row is None:
            return None
        if row.status == IN_FLIGHT:
            self._check_claim(row)
            return None
        if row.body_mac != self.settle():
            raise IdempotencyConflict(
                "This Idempotency-Key was used with another request; use a new key for a new request."
            )
        return row.status, row.answer

    def once(self, connection: Connection, effect: Callable[[], Reply]) -> Reply:
        """The earlier answer, or the effect's, remembered in the same transaction."""
        earlier = self.earlier(connection)
        if earlier is not None:
            return earlier
        status, answer = effect()
        if self.key is not None:
            connection.execute(sa.delete(idempotency).where(*self._same()))  # our claim, or one that ran out
            connection.execute(
                sa.insert(idempotency).values(
                    caller=self.caller,
                    key=self.key,
                    body_mac=self.settle(),
                    status=status,
                    answer=answer,
                    batch=self.batch,
                    created=time.time(),
                )
            )
            self._make_room(connection)
        return status, answer

    def claim(self, connection: Connection, until: float) -> None:
        """Hold the key until then, or longer if it is ours already; nothing if it was answered. Raises
        IdempotencyInFlight."""
        row = self._row(connection)
        if row is not None and row.status != IN_FLIGHT:
            return
        if row is not None:
            self._check_claim(row)
            connection.execute(sa.update(idempotency).where(*self._same()).values(claimed_until=until))
        else:
            connection.execute(
                sa.insert(idempotency).values(
                    caller=self.caller,
                    key=self.key,
                    body_mac="",
                    status=IN_FLIGHT,
                    answer={},
                    batch=self.batch,
                    claimed_until=until,
                    created=time.time(),
                )
            )

    def unclaim(self, connection: Connection) -> None:
        """Give up our claim, if it is still ours."""
        t = idempotency
        connection.execute(
            sa.delete(t).where(*self._same(), t.c.status == IN_FLIGHT, t.c.claimed_until == self.claimed_until)
        )

    def _make_room(self, connection: Connection) -> None:
        t, most = idempotency, MOST if self.batch is None else MOST_OF_BATCH
        own = (t.c.caller == self.caller, t.c.batch == self.batch, t.c.status.not_in((IN_FLIGHT, CHARGING)))
        last = sa.select(t.c.created).where(*own).order_by(t.c.created.desc()).offset(most - 1).limit(1)
        connection.execute(sa.delete(t).where(*own, t.c.created < last.scalar_subquery()))

    def _row(self, connection: Connection) -> Any:
        return connection.execute(sa.select(idempotency).where(*self._same())).first()

    def _same(self) -> tuple[sa.ColumnElement[bool], ...]:
        return idempotency.c.caller == self.caller, idempotency.c.key == self.key

    def _check_claim(self, row: Any) -> None:
        # a claim that is longer than any was made before the clock was set back, and would hold the key till then
        if row.claimed_until != self.claimed_until and 0 < row.claimed_until - time.time() <= 2 * CLAIM_SECONDS:
            raise IdempotencyInFlight(
                "A call with this Idempotency-Key is still being answered; repeat yours in a moment for its answer."
            )


class Claim:
    """Holds a call's key while it is in flight; a context manager. Call `renew` now and then."""

    def __init__(self, database: Database, call: IdempotentCall) -> None:
        self.database, self.call = database, call

    def __enter__(self) -> Claim:
        return self

    def renew(self) -> None:
        """Take or prolong the claim, at most every quarter of its time. Raises IdempotencyInFlight."""
        held = self.call.claimed_until
        if self.call.key is None or (held is not None and held - time.time() > 0.75 * CLAIM_SECONDS):
            return
        until = time.time() + CLAIM_SECONDS
        self.database.write("idempotency.claim", lambda c: self.call.claim(c, until))
        self.call.claimed_until = until

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None and self.call.claimed_until is not None:
            self.database.write("idempotency.unclaim", self.call.unclaim)


def forget_batch(connection: Connection, batch: str) -> None:
    """The keys of a batch that is no more."""
    connection.execute(sa.delete(idempotency).where(idempotency.c.batch == batch))


def forget_old(database: Database) -> int:
    """Forget the calls outside of batches that were answered, or begun, too long ago; returns how many."""
    t, before = idempotency, time.time() - KEPT_SECONDS
    old = t.c.batch.is_(None) & (t.c.created < before)
    if database.read("idempotency.old", lambda c: c.execute(sa.select(t.c.key).where(old).limit(1)).first()) is None:
        return 0
    return database.write("idempotency.forget", lambda c: c.execute(sa.delete(t).where(old)).rowcount)


NO_KEY = IdempotentCall("", None, "")
