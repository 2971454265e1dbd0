"""Callers by role: API keys, and subjects of an OIDC issuer. A key is 256 random bits, so its SHA-256 is stored without
a salt; the key itself never is. A subject is a row beside the keys, so that it has an id, can be listed and revoked."""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.actors import ISSUED, require_name
from label_dp.errors import InvalidInput, NotFound, Unauthenticated, Unavailable
from label_dp.moments import TIME, Clock, expiry, utc_now
from label_dp.store.database import Database
from label_dp.store.macs import key_digest, random_key

COLUMNS = ("id", "name", "role", "audience", "created", "expires", "last_used", "revoked")
PREFIX = "apikey:"  # of an actor that is an API key
MOST_ACTOR = 480  # characters of an actor: an issuer of 200 and a subject of 255


@dataclass(frozen=True)
class Principal:
    """Caller: a key's public id, its role and, for a features party's key, the audience it may read for. `identity`:
    issuer and subject of a caller with a token."""

    key_id: str
    role: str
    audience: str | None = None
    identity: str | None = None

    @property
    def actor(self) -> str:
        """Actor in audit events."""
        return self.identity or f"{PREFIX}{self.key_id}"


@dataclass(frozen=True)
class Identity:
    """Subject of an issuer, as a verified token states it. `expires`: the token's end, in seconds since 1970."""

    issuer: str
    subject: str
    role: str
    audience: str | None
    name: str | None
    expires: int

    @property
    def actor(self) -> str:
        return f"{ISSUED}{self.issuer}#{self.subject}"

    @property
    def id(self) -> str:
        """Id beside those of API keys."""
        return f"oidc-{hashlib.sha256(self.actor.encode()).hexdigest()[:24]}"


def apikey_table(metadata: sa.MetaData) -> sa.Table:
    """Declare the table of API keys."""
    return sa.Table(
        "api_keys",
        metadata,
        sa.Column("id", sa.String(32), primary_key=True),
        # its owner, a person or a program; shown beside its id, in no hashed event
        sa.Column("name", sa.String(40)),
        sa.Column("secret_sha256", sa.String(64), nullable=False, unique=True),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("audience", sa.String(200)),
        sa.Column("created", sa.String(20), nullable=False),
        sa.Column("revoked", sa.String(20)),
        sa.Column("expires", sa.String(20)),
        sa.Column("last_used", sa.String(10)),  # the day: a second would cost a write per call
        sa.Column("identity", sa.String(MOST_ACTOR)),  # actor of an issuer's subject; its secret_sha256 is no digest
    )


def names_of(connection: Connection, keys: sa.Table) -> dict[str, str]:
    """Map actors to the names of their keys, revoked ones included, and to those that an issuer states."""
    rows = connection.execute(sa.select(keys.c.id, keys.c.name, keys.c.identity).where(keys.c.name.is_not(None))).all()
    names = {f"{PREFIX}{row.id}": row.name for row in rows}
    return names | {row.identity: row.name for row in rows if row.identity is not None}


class ApiKeys:
    """API keys of one party: they are created, authenticated, revoked and listed. `verify` reads a token of the party's
    issuer, if it has one."""

    def __init__(
        self,
        database: Database,
        table: sa.Table,
        roles: tuple[str, ...],
        prefix: str,
        clock: Clock = utc_now,
        verify: Callable[[str], Identity] | None = None,
    ) -> None:
        self.database, self.table, self.roles, self.prefix, self.clock = database, table, roles, prefix, clock
        self.verify = verify
        self._noting: threading.Thread | None = None
        self._noted: dict[str, str] = {}  # the day, by key

    def create(
        self, role: str, audience: str | None = None, expires: str | None = None, name: str | None = None
    ) -> tuple[str, str]:
        """Create a key and return (key id, secret). The secret is shown once and cannot be recovered. `expires`: see
        `expiry`; `name`: its owner. Raises InvalidInput."""
        secret = random_key(self.prefix)
        return self.register(key_digest(secret), role, audience, expires, name), secret

    def register(
        self, digest: str, role: str, audience: str | None = None, expires: str | None = None, name: str | None = None
    ) -> str:
        """Register a key that its holder made, by the SHA-256 of the secret; return the key's id. Repeating it changes
        nothing. Raises InvalidInput, also for a key of another role or audience, or one that has ended."""
        if name is not None:
            require_name(name)
        if role not in self.roles:
            raise InvalidInput(f"Role '{role}' does not exist; choose one of {', '.join(self.roles)}.")
        row = {
            "id": secrets.token_hex(6),
            "name": name,
            "secret_sha256": digest,
            "role": role,
            "audience": audience,
            "created": self._now(),
            "expires": expiry(expires, self.clock()) if expires is not None else None,
        }

        def work(connection: Connection) -> str:
            same = connection.execute(sa.select(self.table).where(self.table.c.secret_sha256 == digest)).first()
            if same is None:
                connection.execute(sa.insert(self.table).values(**row))
                return str(row["id"])
            if (same.role, same.audience) != (role, audience) or self._ended(same) is not None:
                raise InvalidInput(f"This key was registered before, as {same.id}, for something else, or has ended.")
            return str(same.id)

        return self.database.write("apikey.create", work)

    def list(self) -> list[dict[str, str | None]]:
        columns = [self.table.c[name] for name in COLUMNS]
        rows = self.database.read(
            "apikey.list", lambda c: c.execute(sa.select(*columns).order_by(self.table.c.created)).all()
        )
        return [dict(row._mapping) for row in rows]

    def names(self, connection: Connection) -> dict[str, str]:
        """As `names_of`."""
        return names_of(connection, self.table)

    def stands(self, connection: Connection, actor: str) -> bool:
        """Return whether scheduled work of this actor may still run; False for an API key or a subject of an issuer
        that is revoked, expired or unknown."""
        if not actor.startswith((PREFIX, ISSUED)):
            return True
        t = self.table.c
        same = t.identity == actor if actor.startswith(ISSUED) else t.id == actor.removeprefix(PREFIX)
        row = connection.execute(sa.select(self.table).where(same)).first()
        return row is not None and self._ended(row) is None

    def revoke(self, key_id: str) -> None:
        statement = (
            sa.update(self.table)
            .where(self.table.c.id == key_id, self.table.c.revoked.is_(None))
            .values(revoked=self._now())
        )
        if self.database.write("apikey.revoke", lambda c: c.execute(statement).rowcount) == 0:
            raise NotFound(f"There is no active API key with id '{key_id}'.")

    def authenticate(self, secret: str | None) -> Principal:
        """Return the caller behind a bearer token. Raises Unauthenticated for a missing, unknown, revoked or expired
        one."""
        (outcome,) = self.authenticate_all([secret])
        if isinstance(outcome, Unauthenticated):
            raise outcome
        return outcome

    def authenticate_all(self, tokens: Sequence[str | None]) -> Sequence[Principal | Unauthenticated]:
        """Authenticate several tokens with one query."""
        identities = [self._identity(token) for token in tokens]
        digests = [
            i.id if isinstance(i, Identity) else key_digest(s) if s and i is None else ""
            for s, i in zip(tokens, identities, strict=True)
        ]
        sought = sorted(set(digests) - {""})
        query = sa.select(self.table).where(self.table.c.secret_sha256.in_(sought))
        rows = self.database.read("apikey.authenticate", lambda c: c.execute(query).all()) if sought else []
        rows_by_digest = {row.secret_sha256: row for row in rows}
        outcomes = [
            i if isinstance(i, Unauthenticated) else self._admitted(i, row) if i else self._judged(digest, row)
            for digest, i, row in zip(digests, identities, map(rows_by_digest.get, digests), strict=True)
        ]
        valid = {one.key_id for one in outcomes if isinstance(one, Principal)}
        self._note_use(row.id for row in rows if row.id in valid and row.last_used != self._now()[:10])
        return outcomes

    def admit(self, identity: Identity) -> Principal:
        """Return the caller that a verified identity is. Raises Unauthenticated if it was revoked here."""
        query = sa.select(self.table).where(self.table.c.secret_sha256 == identity.id)
        outcome = self._admitted(identity, self.database.read("apikey.admit", lambda c: c.execute(query).first()))
        if isinstance(outcome, Unauthenticated):
            raise outcome
        return outcome

    def _identity(self, token: str | None) -> Identity | Unauthenticated | None:
        """Verify a token of the issuer; None if it is none, or there is no issuer."""
        if self.verify is None or not token or not is_signed(token):
            return None
        try:
            return self.verify(token)
        except Unauthenticated as error:
            return error

    def _admitted(self, identity: Identity, row: Any) -> Principal | Unauthenticated:
        """Record a subject, or its new role, audience or name; nothing is written for one that is as it was."""
        states = {"role": identity.role, "audience": identity.audience, "name": identity.name}
        if row is not None and row.revoked is not None:
            return Unauthenticated("This subject of the issuer was revoked here.", "revoked subject", row.id)
        if row is None or any(row._mapping[name] != value for name, value in states.items()):
            same = self.table.c.id == identity.id
            new = {"id": identity.id, "secret_sha256": identity.id, "identity": identity.actor, "created": self._now()}

            def store(connection: Connection) -> None:
                if connection.execute(sa.update(self.table).where(same).values(**states)).rowcount == 0:
                    connection.execute(sa.insert(self.table).values(**new, **states))

            self.database.write("apikey.subject", store)
        return Principal(identity.id, identity.role, identity.audience, identity.actor)

    def _judged(self, digest: str, row: Any) -> Principal | Unauthenticated:
        reason, key_id = "no key", None
        if digest:
            if row is None:
                reason = "unknown key"
            elif (ended := self._ended(row)) is not None:
                reason, key_id = ended, row.id
            else:
                return Principal(row.id, row.role, row.audience)
        return Unauthenticated(
            "Send a valid API key in the header 'Authorization: Bearer KEY'; the 'apikey create' command makes one.",
            reason,
            key_id,
        )

    def _ended(self, row: Any) -> str | None:
        if row.revoked is not None:
            return "revoked key"
        return "expired key" if row.expires is not None and row.expires <= self._now() else None

    def wait(self) -> None:
        """Wait until no use of a key is being recorded."""
        if self._noting is not None:
            self._noting.join()

    def _note_use(self, key_ids: Iterable[str]) -> None:
        """Record the day of use. No caller waits for it: the database may be locked for long."""
        used = sorted(key_id for key_id in key_ids if self._noted.get(key_id) != self._now()[:10])
        if used and (self._noting is None or not self._noting.is_alive()):
            self._noting = threading.Thread(target=self._used, args=(used,), name="apikeys", daemon=True)
            self._noting.start()

    def _used(self, key_ids: Sequence[str]) -> None:
        today = self._now()[:10]
        statement = sa.update(self.table).where(self.table.c.id.in_(key_ids)).values(last_used=today)
        with suppress(Unavailable):  # the next call of the day tries again
            self.database.write("apikey.used", lambda c: c.execute(statement) and None)
            self._noted |= dict.fromkeys(key_ids, today)

    def _now(self) -> str:
        return self.clock().strftime(TIME)


def is_signed(token: str) -> bool:
    """Return whether a bearer token has the three parts of a signed one; no API key has."""
    return token.count(".") == 2
