"""Bringing a database to the schema this version needs; Alembic is imported only to change one that is there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from label_dp.audit.store import append_only_ddl, append_only_drop
from label_dp.errors import Unavailable
from label_dp.service.database import Database

if TYPE_CHECKING:
    from alembic.config import Config

_VERSION = sa.Table(  # as Alembic makes it
    "alembic_version",
    sa.MetaData(),
    sa.Column("version_num", sa.String(32), nullable=False),
    sa.PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


def _config(database: Database, scripts: Path, connection: sa.Connection) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(scripts))
    config.attributes["connection"] = connection
    return config


def current_revision(database: Database) -> str | None:
    def query(connection: sa.Connection) -> str | None:
        if not sa.inspect(connection).has_table("alembic_version"):
            return None
        return connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()

    return database.read("schema.version", query)


def prepare(
    database: Database, scripts: Path, head: str, metadata: sa.MetaData, append_only: Mapping[str, str]
) -> None:
    """As `upgrade`, but an empty database gets at once the declared tables, to which all migrations together lead."""
    if current_revision(database) != head and not database.write(
        "schema.create", lambda connection: _created(connection, head, metadata, append_only)
    ):
        upgrade(database, scripts, head)


def _created(connection: sa.Connection, head: str, metadata: sa.MetaData, append_only: Mapping[str, str]) -> bool:
    """Whether the database was empty, and has the tables now."""
    if not is_empty(connection):
        return False
    create(connection, metadata, append_only)
    _VERSION.create(connection)
    connection.execute(sa.insert(_VERSION).values(version_num=head))
    return True


def is_empty(connection: sa.Connection) -> bool:
    return not sa.inspect(connection).get_table_names()


def upgrade(database: Database, scripts: Path, head: str) -> None:
    """Migrate to `head`, the newest revision of this version. Raises Unavailable if the database is newer."""
    current = current_revision(database)
    if current == head:
        return
    from alembic import command
    from alembic.script import ScriptDirectory

    def migrate(connection: sa.Connection) -> None:
        config = _config(database, scripts, connection)
        if current is not None:
            known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
            if current not in known:
                raise Unavailable(
                    "The database was written by a newer version of this software; upgrade the software first."
                )
        command.upgrade(config, head)

    database.write("schema.upgrade", migrate)


def downgrade(database: Database, scripts: Path, revision: str) -> None:
    """Migrate down to `revision` ("base" empties the database); used by the migration tests."""
    from alembic import command

    database.write(
        "schema.downgrade", lambda connection: command.downgrade(_config(database, scripts, connection), revision)
    )


def create(connection: sa.Connection, metadata: sa.MetaData, append_only: Mapping[str, str]) -> None:
    """The first migration: the declared tables and the guards of those in `append_only`, each with SQL that is true of
    a row which an insert of NEW would replace."""
    metadata.create_all(connection, checkfirst=False)
    for table, same in append_only.items():
        for statement in append_only_ddl(connection.dialect.name, table, same):
            connection.execute(sa.text(statement))


def drop(connection: sa.Connection, metadata: sa.MetaData, append_only: Mapping[str, str]) -> None:
    """What `create` made."""
    for table in append_only:
        for statement in append_only_drop(connection.dialect.name, table):
            connection.execute(sa.text(statement))
    metadata.drop_all(connection, checkfirst=False)


def run_env() -> None:
    """The body of both parties' Alembic `env.py`: migrate on the connection that `upgrade` opened."""
    from alembic import context

    connection = context.config.attributes["connection"]
    context.configure(connection=connection, transactional_ddl=False)
    context.run_migrations()
