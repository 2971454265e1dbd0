"""Sessions of people: an API key, shown once at the sign-in, becomes a cookie of random bits that expires.

A session is as good as its key: one that was revoked, or has expired, opens nothing from then on. The key itself is in
no session, and of the cookie only its SHA-256 is stored.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import timedelta

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.moments import TIME
from label_dp.store.apikeys import ApiKeys, Principal

HOURS = 12
MOST = 20  # of a key at once; the oldest goes


def session_table(metadata: sa.MetaData) -> sa.Table:
    return sa.Table(
        "sessions",
        metadata,
        sa.Column("token_sha256", sa.String(64), primary_key=True),
        sa.Column("key_id", sa.String(32), nullable=False, index=True),
        sa.Column("created", sa.String(20), nullable=False),
        sa.Column("expires", sa.String(20), nullable=False, index=True),
    )


@dataclass(frozen=True)
class SignedInSession:
    """`csrf`: what every form of this session sends back; `name`: whose key it is, if that was said."""

    caller: Principal
    csrf: str
    name: str | None


class Sessions:
    def __init__(self, apikeys: ApiKeys, table: sa.Table) -> None:
        self.apikeys, self.table, self.database = apikeys, table, apikeys.database

    def open(self, secret: str | None) -> str:
        """The cookie of a new session of the API key `secret`. Raises Unauthenticated."""
        caller, t = self.apikeys.authenticate(secret), self.table
        token, now = secrets.token_urlsafe(32), self.apikeys.clock()
        row = {
            "token_sha256": _digest(token),
            "key_id": caller.key_id,
            "created": now.strftime(TIME),
            "expires": (now + timedelta(hours=HOURS)).strftime(TIME),
        }
        oldest = sa.select(t.c.token_sha256).where(t.c.key_id == caller.key_id).order_by(t.c.created.desc())

        def store(connection: Connection) -> None:
            connection.execute(sa.delete(t).where(t.c.expires <= row["created"]))
            beyond = connection.execute(oldest.offset(MOST - 1)).scalars().all()
            connection.execute(sa.delete(t).where(t.c.token_sha256.in_(beyond)))
            connection.execute(sa.insert(t).values(**row))

        self.database.write("session.open", store)
        return token

    def find(self, token: str | None) -> SignedInSession | None:
        """The session of a cookie; None for none, an expired one, and one of a key that is no longer valid."""
        if not token:
            return None
        t, k = self.table, self.apikeys.table
        query = (
            sa.select(k.c.id, k.c.name, k.c.role, k.c.audience, k.c.expires)
            .join(t, t.c.key_id == k.c.id)
            .where(t.c.token_sha256 == _digest(token), t.c.expires > self._now(), k.c.revoked.is_(None))
        )
        row = self.database.read("session.find", lambda c: c.execute(query).first())
        if row is None or (row.expires is not None and row.expires <= self._now()):
            return None
        csrf = hmac.digest(token.encode("utf-8", "replace"), b"csrf", "sha256").hex()
        return SignedInSession(Principal(row.id, row.role, row.audience), csrf, row.name)

    def close(self, token: str | None) -> None:
        """Ends a session; one that is not there is ended already."""
        statement = sa.delete(self.table).where(self.table.c.token_sha256 == _digest(token or ""))
        self.database.write("session.close", lambda c: c.execute(statement) and None)

    def _now(self) -> str:
        return self.apikeys.clock().strftime(TIME)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
