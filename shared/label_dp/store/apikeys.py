"""API keys by role. A key is 256 random bits, so its SHA-256 is stored without a salt; the key itself never is."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.actors import require_name
from label_dp.errors import InvalidInput, NotFound, Unauthenticated, Unavailable
from label_dp.moments import TIME, Clock, expiry, utc_now
from label_dp.store.database import Database
from label_dp.store.macs import key_digest, random_key

COLUMNS = ("id", "name", "role", "audience", "created", "expires", "last_used", "revoked")
PREFIX = "apikey:"  # of an actor that is an API key


@dataclass(frozen=True)
class Principal:
    """Caller: a key's public id, its role and, for a features party's key, the audience it may read for."""

    key_id: str
    role: str
    audience: str | None = None

    @property
    def actor(self) -> str:
        """Actor in audit events."""
        return f"{PREFIX}{self.key_id}"


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
    )


def names_of(connection: Connection, keys: sa.Table) -> dict[str, str]:
    """Map actors to the names of their keys, revoked ones included."""
    rows = connection.execute(sa.select(keys.c.id, keys.c.name).where(keys.c.name.is_not(None)))
    return {f"{PREFIX}{row.id}": row.name for row in rows}


class ApiKeys:
    """API keys of one party: they are created, authenticated, revoked and listed."""

    def __init__(
        self, database: Database, table: sa.Table, roles: tuple[str, ...], prefix: str, clock: Clock = utc_now
    ) -> None:
        self.database, self.table, self.roles, self.prefix, self.clock = database, table, roles, prefix, clock
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
        """Return whether scheduled work of this actor may still run; False for an API key that is revoked, expired or
        unknown."""
        if not actor.startswith(PREFIX):
            return True
        row = connection.execute(sa.select(self.table).where(self.table.c.id == actor.removeprefix(PREFIX))).first()
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
        digests = [key_digest(s) if s else "" for s in tokens]
        sought = sorted(set(digests) - {""})
        query = sa.select(self.table).where(self.table.c.secret_sha256.in_(sought))
        rows = self.database.read("apikey.authenticate", lambda c: c.execute(query).all()) if sought else []
        rows_by_digest = {row.secret_sha256: row for row in rows}
        outcomes = [self._judged(digest, rows_by_digest.get(digest)) for digest in digests]
        valid = {one.key_id for one in outcomes if isinstance(one, Principal)}
        self._note_use(row.id for row in rows if row.id in valid and row.last_used != self._now()[:10])
        return outcomes

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
