"""Sessions of people: an API key, sent once at sign-in, or an issuer's token becomes a cookie of random bits. A session
ends with the revocation or expiry of its key, and with the revocation of its subject or the end of its token. It does
not contain the key, and only the SHA-256 of the cookie is stored."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.moments import TIME
from label_dp.store.apikeys import ApiKeys, Identity, Principal

HOURS = 12
MOST = 20  # of a key at once; the oldest goes


def session_table(metadata: sa.MetaData) -> sa.Table:
    """Declare the table of sessions."""
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
    """Session of a caller. `csrf`: token that every form sends back; `name`: owner of the key, if known."""

    caller: Principal
    csrf: str
    name: str | None


class Sessions:
    """Sessions of one party: they are opened, found and closed."""

    def __init__(self, apikeys: ApiKeys, table: sa.Table) -> None:
        self.apikeys, self.table, self.database = apikeys, table, apikeys.database

    def open(self, secret: str | None) -> str:
        """Open a session of the API key `secret` and return its cookie. Raises Unauthenticated."""
        return self._open(self.apikeys.authenticate(secret), self.apikeys.clock() + timedelta(hours=HOURS))

    def open_for(self, identity: Identity) -> str:
        """Open a session of a subject that ends with its token, and return its cookie. Raises Unauthenticated."""
        latest = self.apikeys.clock() + timedelta(hours=HOURS)
        ends = datetime.fromtimestamp(min(identity.expires, int(latest.timestamp())), UTC)
        return self._open(self.apikeys.admit(identity), ends)

    def _open(self, caller: Principal, expires: datetime) -> str:
        t, token, now = self.table, secrets.token_urlsafe(32), self.apikeys.clock()
        row = {
            "token_sha256": _digest(token),
            "key_id": caller.key_id,
            "created": now.strftime(TIME),
            "expires": expires.strftime(TIME),
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
        """Return the session of a cookie; None if it is missing or expired, or its key is no longer valid."""
        if not token:
            return None
        t, k = self.table, self.apikeys.table
        query = (
            sa.select(k.c.id, k.c.name, k.c.role, k.c.audience, k.c.expires, k.c.identity)
            .join(t, t.c.key_id == k.c.id)
            .where(t.c.token_sha256 == _digest(token), t.c.expires > self._now(), k.c.revoked.is_(None))
        )
        row = self.database.read("session.find", lambda c: c.execute(query).first())
        if row is None or (row.expires is not None and row.expires <= self._now()):
            return None
        csrf = hmac.digest(token.encode("utf-8", "replace"), b"csrf", "sha256").hex()
        return SignedInSession(Principal(row.id, row.role, row.audience, row.identity), csrf, row.name)

    def close(self, token: str | None) -> None:
        """Close a session; does nothing if there is none."""
        statement = sa.delete(self.table).where(self.table.c.token_sha256 == _digest(token or ""))
        self.database.write("session.close", lambda c: c.execute(statement) and None)

    def _now(self) -> str:
        return self.apikeys.clock().strftime(TIME)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
