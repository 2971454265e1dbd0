"""Migration of a database to the schema of this version; Alembic is imported only to change an existing one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from label_dp.errors import Unavailable
from label_dp.store.database import Database

if TYPE_CHECKING:
    from alembic.config import Config

_VERSION = sa.Table(  # as Alembic makes it
    "alembic_version",
    sa.MetaData(),
    sa.Column("version_num", sa.String(32), nullable=False),
    sa.PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


NEWER = "The database was written by a newer version of this software; upgrade the software first."


@dataclass(frozen=True)
class DatabaseSchema:
    """Schema of a party: migrations up to `head`, the tables they make, and the append-only ones."""

    scripts: Path
    head: str
    metadata: sa.MetaData
    append_only: Mapping[str, str]

    def prepare(self, database: Database) -> None:
        prepare(database, self.scripts, self.head, self.metadata, self.append_only)

    def pending(self, current: str | None) -> list[tuple[str, str]]:
        """List (revision, description) of each migration from `current` to the head, first to last. Raises Unavailable
        if this version does not know `current`."""
        if current == self.head:
            return []
        from alembic.script import ScriptDirectory

        revisions: list[tuple[str, str]] = []
        for script in ScriptDirectory(str(self.scripts)).walk_revisions("base", self.head):
            if script.revision == current:
                break
            revisions.append((script.revision, (script.doc or "").partition("\n")[0].strip()))
        else:
            if current is not None:
                raise Unavailable(NEWER)
        return revisions[::-1]

    def make(self, connection: sa.Connection, revision: str) -> None:
        """Create the empty tables of `revision` in an empty database."""
        _migrate(connection, self.scripts, revision)

    def bring(self, connection: sa.Connection) -> None:
        """Migrate on the caller's write transaction to the head."""
        _migrate(connection, self.scripts, self.head)


def _migrate(connection: sa.Connection, scripts: Path, revision: str) -> None:
    from alembic import command

    command.upgrade(_config(scripts, connection), revision)


def _config(scripts: Path, connection: sa.Connection) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(scripts))
    config.attributes["connection"] = connection
    return config


def current_revision(database: Database) -> str | None:
    """Return the revision of a database; None before the first migration."""
    return database.read("schema.version", revision_of)


def revision_of(connection: sa.Connection) -> str | None:
    """Return the revision that a connection sees; None before the first migration."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()


def prepare(
    database: Database, scripts: Path, head: str, metadata: sa.MetaData, append_only: Mapping[str, str]
) -> None:
    """Upgrade, or create the tables of the head at once in an empty database."""
    if current_revision(database) != head and not database.write(
        "schema.create", lambda connection: _created(connection, head, metadata, append_only)
    ):
        upgrade(database, scripts, head)


def _created(connection: sa.Connection, head: str, metadata: sa.MetaData, append_only: Mapping[str, str]) -> bool:
    """Return whether the database was empty; then its tables were created."""
    if not is_empty(connection):
        return False
    create(connection, metadata, append_only)
    _VERSION.create(connection)
    connection.execute(sa.insert(_VERSION).values(version_num=head))
    return True


def is_empty(connection: sa.Connection) -> bool:
    """Return whether the database has no tables."""
    return not sa.inspect(connection).get_table_names()


def upgrade(database: Database, scripts: Path, head: str) -> None:
    """Migrate to `head`, the newest revision of this version. Raises Unavailable if the database is newer."""
    current = current_revision(database)
    if current == head:
        return
    from alembic.script import ScriptDirectory

    def migrate(connection: sa.Connection) -> None:
        if current is not None:
            revisions = {script.revision for script in ScriptDirectory(str(scripts)).walk_revisions()}
            if current not in revisions:
                raise Unavailable(NEWER)
        _migrate(connection, scripts, head)

    database.write("schema.upgrade", migrate)


def downgrade(database: Database, scripts: Path, revision: str) -> None:
    """Migrate down to `revision` ("base" empties the database); used by the migration tests."""
    from alembic import command

    database.write("schema.downgrade", lambda connection: command.downgrade(_config(scripts, connection), revision))


def create(connection: sa.Connection, metadata: sa.MetaData, append_only: Mapping[str, str]) -> None:
    """Run the first migration: create the tables and the guards of those in `append_only`."""
    metadata.create_all(connection, checkfirst=False)
    for table, same in append_only.items():
        for statement in append_only_ddl(connection.dialect.name, table, same):
            connection.execute(sa.text(statement))


def drop(connection: sa.Connection, metadata: sa.MetaData, append_only: Mapping[str, str]) -> None:
    """Drop the tables and guards that `create` made."""
    for table in append_only:
        for statement in append_only_drop(connection.dialect.name, table):
            connection.execute(sa.text(statement))
    metadata.drop_all(connection, checkfirst=False)


def run_env() -> None:
    """Run both parties' Alembic `env.py` on the connection that `upgrade` opened."""
    from alembic import context

    connection = context.config.attributes["connection"]
    context.configure(connection=connection, transactional_ddl=False)
    context.run_migrations()


def append_only_ddl(dialect: str, table: str, same: str) -> list[str]:
    """Return statements by which the database refuses to change or delete rows of `table` (a guard, not a proof).
    `same`: SQL that is true of a row which an insert of NEW would replace. All three are constants of a migration."""
    what = table.replace("_", " ")
    if dialect == "sqlite":
        refuse = f"BEGIN SELECT RAISE(ABORT, '{what} are append-only'); END"
        return [
            *(
                f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} {refuse}"
                for verb in ("UPDATE", "DELETE")
            ),
            # INSERT OR REPLACE removes the old row without asking the trigger on DELETE
            f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table} "  # noqa: S608 - constants only
            f"WHEN EXISTS (SELECT 1 FROM {table} WHERE {same}) {refuse}",
        ]
    return [
        f"CREATE FUNCTION {table}_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{what} are append-only'; END $$",
        f"CREATE TRIGGER {table}_no_change BEFORE UPDATE OR DELETE ON {table} "
        f"FOR EACH ROW EXECUTE FUNCTION {table}_append_only()",
        f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table} "
        f"FOR EACH STATEMENT EXECUTE FUNCTION {table}_append_only()",
    ]


def append_only_drop(dialect: str, table: str) -> list[str]:
    """Return the statements that undo `append_only_ddl`."""
    if dialect == "sqlite":
        return [f"DROP TRIGGER {table}_no_{verb}" for verb in ("update", "delete", "replace")]
    return [
        f"DROP TRIGGER {table}_no_change ON {table}",
        f"DROP TRIGGER {table}_no_truncate ON {table}",
        f"DROP FUNCTION {table}_append_only()",
    ]
