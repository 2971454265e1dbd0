"""API keys by role. A key is 256 random bits, so its SHA-256 is stored without a salt; the key itself never is."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

import sqlalchemy as sa

from shared.audit.store import Clock, utc_now
from shared.errors import InvalidInput, NotFound, Unauthenticated
from shared.service.database import Database


@dataclass(frozen=True)
class Principal:
    """Who calls: a key's public id, its role and, for a features party's key, the audience it may read for."""

    key_id: str
    role: str
    audience: str | None = None


def apikey_table(metadata: sa.MetaData) -> sa.Table:
    return sa.Table(
        "api_keys",
        metadata,
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("secret_sha256", sa.String(64), nullable=False, unique=True),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("audience", sa.String(200)),
        sa.Column("created", sa.String(20), nullable=False),
        sa.Column("revoked", sa.String(20)),
    )


class ApiKeys:
    def __init__(
        self, database: Database, table: sa.Table, roles: tuple[str, ...], prefix: str, clock: Clock = utc_now
    ) -> None:
        self.database, self.table, self.roles, self.prefix, self.clock = database, table, roles, prefix, clock

    def create(self, role: str, audience: str | None = None) -> tuple[str, str]:
        """(key id, secret). The secret is shown once and cannot be recovered."""
        if role not in self.roles:
            raise InvalidInput(f"Role '{role}' does not exist; choose one of {', '.join(self.roles)}.")
        key_id, secret = secrets.token_hex(6), f"{self.prefix}_{secrets.token_urlsafe(32)}"
        row = {
            "id": key_id,
            "secret_sha256": hashlib.sha256(secret.encode()).hexdigest(),
            "role": role,
            "audience": audience,
            "created": self._now(),
        }
        self.database.write("apikey.create", lambda c: c.execute(sa.insert(self.table).values(**row)) and None)
        return key_id, secret

    def list(self) -> list[dict[str, str | None]]:
        columns = [self.table.c[name] for name in ("id", "role", "audience", "created", "revoked")]
        rows = self.database.read(
            "apikey.list", lambda c: c.execute(sa.select(*columns).order_by(self.table.c.created)).all()
        )
        return [dict(row._mapping) for row in rows]

    def revoke(self, key_id: str) -> None:
        statement = (
            sa.update(self.table)
            .where(self.table.c.id == key_id, self.table.c.revoked.is_(None))
            .values(revoked=self._now())
        )
        if self.database.write("apikey.revoke", lambda c: c.execute(statement).rowcount) == 0:
            raise NotFound(f"There is no active API key with id '{key_id}'.")

    def authenticate(self, secret: str | None) -> Principal:
        """The caller behind a bearer token; Unauthenticated for none, an unknown or a revoked one."""
        if secret:
            t = self.table
            query = sa.select(t.c.id, t.c.role, t.c.audience).where(
                t.c.secret_sha256 == hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest(),
                t.c.revoked.is_(None),
            )
            row = self.database.read("apikey.authenticate", lambda c: c.execute(query).first())
            if row is not None:
                return Principal(row.id, row.role, row.audience)
        raise Unauthenticated(
            "Send a valid API key in the header 'Authorization: Bearer KEY'; the 'apikey create' command makes one."
        )

    def _now(self) -> str:
        return self.clock().strftime("%Y-%m-%dT%H:%M:%SZ")
