"""Idempotency keys: scoped to the API key, with a keyed MAC of the call, committed together with their effect.

A call whose effect is one transaction looks up the `earlier` answer, then runs `once` in that transaction. A long call,
or one without a transaction of ours, meanwhile holds a `Claim` on its key: a row without an answer, and a time until
which nobody else may answer, so that a dead process does not hold the key for ever. Refusals are not remembered: the
call may be repeated under corrected circumstances.

Retention: a call that began a charged computation (status 202) is kept as long as its batch, whose labels a second
computation would need, so that a repeated call never charges twice. Other calls about a batch are kept as long as the
batch, at most MOST_OF_BATCH for each API key; all others KEPT_SECONDS, at most MOST for each API key. The oldest go
first.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.errors import IdempotencyConflict, IdempotencyInFlight, InvalidInput, LabelDPError
from label_dp.store.database import Database

MAX_KEY = 200
IN_FLIGHT = 0  # the status of a claim
CHARGING = 202  # status of calls that begin a release, an answer or a predictor
KEPT_SECONDS = 30 * 86_400.0
MOST, MOST_OF_BATCH = 10_000, 100_000
Reply = tuple[int, Mapping[str, Any]]


def idempotency_table(metadata: sa.MetaData) -> sa.Table:
    """Declare the table of calls."""
    return sa.Table(
        "idempotency",
        metadata,
        sa.Column("caller", sa.String(40), primary_key=True),
        sa.Column("key", sa.String(MAX_KEY), primary_key=True),
        sa.Column("body_mac", sa.String(64), nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("answer", sa.JSON, nullable=False),
        # the batch whose life the key shares; `claimed_until` is set while the first call is in flight
        sa.Column("batch", sa.String(40), index=True),
        sa.Column("claimed_until", sa.Float),
        # seconds of the epoch; the oldest are deleted
        sa.Column("created", sa.Float, nullable=False, server_default="0"),
        sa.Index("ix_idempotency_age", "caller", "batch", "created"),
    )


@dataclass
class IdempotencyKeys:
    """Stored calls of one party. `keyed` begins a MAC under its own key; a claim lasts `claim_seconds`."""

    database: Database
    table: sa.Table
    keyed: Callable[[], hmac.HMAC]
    claim_seconds: float = 60.0

    def begun(self, call: str) -> hmac.HMAC:
        """Begin the MAC of a call; its body follows."""
        mac = self.keyed()
        mac.update(call.encode("utf-8") + b"\0")
        return mac

    def call(
        self, caller: str, key: str | None, call: str, body: Callable[[], bytes], batch: str | None = None
    ) -> IdempotentCall:
        """Describe one call; `call` is its path, and the method if it is not the usual one. Raises InvalidInput for a
        bad key."""
        idempotent_call = IdempotentCall(self, caller, key, "", batch)
        if key is not None:
            mac = self.begun(call)
            mac.update(body())
            idempotent_call.body_mac = mac.hexdigest()
        return idempotent_call


@dataclass
class IdempotentCall:
    """Call with an `Idempotency-Key`; `key` is None without one. `body_mac` may be a function: it is called only if the
    MAC is needed, and reads the rest of a streamed body. `batch` is the batch whose retention the key shares."""

    keys: IdempotencyKeys | None
    caller: str
    key: str | None
    body_mac: str | Callable[[], str]
    batch: str | None = None
    claimed_until: float | None = None

    def __post_init__(self) -> None:
        if self.key is not None and not (1 <= len(self.key) <= MAX_KEY and self.key.isprintable()):
            raise InvalidInput(f"An Idempotency-Key is 1 to {MAX_KEY} printable characters.")

    def settle(self) -> str:
        """Return the MAC of the whole body; call it outside of transactions before `once`."""
        if not isinstance(self.body_mac, str):
            self.body_mac = self.body_mac()
        return self.body_mac

    def earlier(self, connection: Connection) -> Reply | None:
        """Return the answer given before to the same call. Raises IdempotencyConflict if the body differs,
        IdempotencyInFlight while another call with this key is being answered."""
        return None if self.key is None else self._judged(self._row(connection))

    def _judged(self, row: Any) -> Reply | None:
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
        """Return the earlier answer, or run the effect and store its reply in the same transaction."""
        earlier = self.earlier(connection)
        if earlier is not None:
            return earlier
        reply = effect()
        remember(connection, [(self, reply)])
        return reply

    def keep(self, reply: Reply) -> Reply:
        """Store the reply to an effect outside of our transactions, or return the answer stored meanwhile. Raises
        IdempotencyInFlight if the claim ran out and another call has it."""
        if self.keys is None or self.key is None:
            return reply
        return self.keys.database.write("idempotency.keep", lambda c: self.once(c, lambda: reply))

    def claim(self, connection: Connection, until: float) -> None:
        """Claim the key until `until`, or prolong our claim; does nothing if it was answered. Raises
        IdempotencyInFlight."""
        row = self._row(connection)
        if row is None:
            claim = self._stored(time.time(), body_mac="", status=IN_FLIGHT, answer={}, claimed_until=until)
            connection.execute(sa.insert(self._table).values(**claim))
        elif row.status == IN_FLIGHT:
            self._check_claim(row)
            connection.execute(sa.update(self._table).where(*self._same()).values(claimed_until=until))

    def unclaim(self, connection: Connection) -> None:
        """Delete our claim if it is still ours."""
        t = self._table
        ours = (*self._same(), t.c.status == IN_FLIGHT, t.c.claimed_until == self.claimed_until)
        connection.execute(sa.delete(t).where(*ours))

    @property
    def _table(self) -> sa.Table:
        assert self.keys is not None
        return self.keys.table

    def _stored(self, now: float, **values: Any) -> dict[str, object]:
        return {"caller": self.caller, "key": self.key, "batch": self.batch, "created": now} | values

    def _make_room(self, connection: Connection) -> None:
        t = self._table
        most, stay = (MOST, (IN_FLIGHT,)) if self.batch is None else (MOST_OF_BATCH, (IN_FLIGHT, CHARGING))
        own = (t.c.caller == self.caller, t.c.batch == self.batch, t.c.status.not_in(stay))
        last = sa.select(t.c.created).where(*own).order_by(t.c.created.desc()).offset(most - 1).limit(1)
        connection.execute(sa.delete(t).where(*own, t.c.created < last.scalar_subquery()))

    def _row(self, connection: Connection) -> Any:
        return connection.execute(sa.select(self._table).where(*self._same())).first()

    def _same(self) -> tuple[sa.ColumnElement[bool], ...]:
        return self._table.c.caller == self.caller, self._table.c.key == self.key

    def _check_claim(self, row: Any) -> None:
        assert self.keys is not None
        # a longer claim was made before the clock was set back, and would hold the key until then
        longest = 2 * self.keys.claim_seconds
        if row.claimed_until != self.claimed_until and 0 < row.claimed_until - time.time() <= longest:
            raise IdempotencyInFlight(
                "A call with this Idempotency-Key is still being answered; repeat yours in a moment for its answer."
            )


def earlier_of(connection: Connection, calls: Sequence[IdempotentCall]) -> list[Reply | LabelDPError | None]:
    """Return, for each call, the value or the error of `earlier`, with one query."""
    keyed = [call for call in calls if call.key is not None]
    rows: dict[tuple[str, str], Any] = {}
    if keyed:
        t = keyed[0]._table
        condition = sa.tuple_(t.c.caller, t.c.key).in_([(call.caller, call.key) for call in keyed])
        rows = {(row.caller, row.key): row for row in connection.execute(sa.select(t).where(condition))}
    return [_found(call, rows.get((call.caller, call.key or ""))) for call in calls]


def _found(call: IdempotentCall, row: Any) -> Reply | LabelDPError | None:
    try:
        return call._judged(row)
    except LabelDPError as error:
        return error


def remember(connection: Connection, answered: Sequence[tuple[IdempotentCall, Reply]]) -> None:
    """Store the replies of unanswered calls in the transaction of their effects."""
    keyed = [(call, reply) for call, reply in answered if call.key is not None]
    if not keyed:
        return
    t, now = keyed[0][0]._table, time.time()
    # our claims, or expired ones
    claims = sa.tuple_(t.c.caller, t.c.key).in_([(call.caller, call.key) for call, _ in keyed])
    connection.execute(sa.delete(t).where(claims))
    rows = [call._stored(now, body_mac=call.settle(), status=reply[0], answer=reply[1]) for call, reply in keyed]
    connection.execute(sa.insert(t), rows)
    for call in {(call.caller, call.batch): call for call, _ in keyed}.values():
        call._make_room(connection)


def forget_old(database: Database, t: sa.Table) -> int:
    """Delete calls outside of batches that began too long ago; returns how many."""
    old = t.c.batch.is_(None) & (t.c.created < time.time() - KEPT_SECONDS)
    first = sa.select(t.c.key).where(old).limit(1)
    if database.read("idempotency.old", lambda c: c.execute(first).first()) is None:
        return 0
    return database.write("idempotency.forget", lambda c: c.execute(sa.delete(t).where(old)).rowcount)


class Claim:
    """Claim on a call's key while it is in flight; the context manager gives the key back if the call fails."""

    def __init__(self, call: IdempotentCall) -> None:
        self.call = call

    def __enter__(self) -> Claim:
        return self

    def take(self) -> Reply | None:
        """Claim the key and return the answer given before. Raises IdempotencyConflict, IdempotencyInFlight."""
        keys = self.call.keys
        if keys is None or self.call.key is None:
            return None
        self.renew()
        return keys.database.read("idempotency.seen", self.call.earlier)

    def renew(self) -> None:
        """Take or prolong the claim, at most every quarter of its time. Call it regularly. Raises
        IdempotencyInFlight."""
        keys, deadline = self.call.keys, self.call.claimed_until
        if keys is None or self.call.key is None:
            return
        if deadline is not None and deadline - time.time() > 0.75 * keys.claim_seconds:
            return
        until = time.time() + keys.claim_seconds
        keys.database.write("idempotency.claim", lambda c: self.call.claim(c, until))
        self.call.claimed_until = until

    def __exit__(self, kind: object, *_: object) -> None:
        keys = self.call.keys
        if kind is not None and keys is not None and self.call.claimed_until is not None:
            keys.database.write("idempotency.unclaim", self.call.unclaim)


NO_KEY = IdempotentCall(None, "", None, "")
