"""Where the ledger of a `World` is kept: each begins as a copy of one made before, and can be copied and put back."""

from __future__ import annotations

import secrets
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Protocol

from tests.support.labels import LabelsParty
from tests.support.ledger_calls import found_population


class Place(Protocol):
    """Of one world. Nobody may be connected while a copy is made or put back."""

    home: Path
    url: str | None

    def copy(self, name: str) -> None: ...

    def put_back(self, name: str) -> None: ...

    def remove(self) -> None: ...


class Template(Protocol):
    """Of many worlds: a home with the population."""

    def fresh(self, folder: Path) -> Place: ...


class SqlitePlace:
    url = None

    def __init__(self, home: Path) -> None:
        self.home = home

    @property
    def _database(self) -> Path:
        return self.home / "labels-party.sqlite"

    def _copy_of(self, name: str) -> Path:
        return self.home.parent / f"{name}.sqlite"

    def copy(self, name: str) -> None:
        _copy(self._database, self._copy_of(name))

    def put_back(self, name: str) -> None:
        _copy(self._copy_of(name), self._database)

    def remove(self) -> None:
        """Its folder goes with the test's."""


class SqliteTemplate:
    def __init__(self, home: Path) -> None:
        self.home = home
        _found(home, None)

    def fresh(self, folder: Path) -> SqlitePlace:
        return SqlitePlace(Path(shutil.copytree(self.home, folder / "home")))


class PostgresPlace:
    def __init__(self, home: Path, url: str) -> None:
        self.home, self.url = home, url
        self.name = url.partition("?")[0].rsplit("/", 1)[1]
        self._copies: set[str] = set()

    def copy(self, name: str) -> None:
        self._copies.add(name)
        _clone(self.url, self.name, f"{self.name}_{name}")

    def put_back(self, name: str) -> None:
        _clone(self.url, f"{self.name}_{name}", self.name)

    def remove(self) -> None:
        for database in (self.name, *(f"{self.name}_{name}" for name in self._copies)):
            _statements(self.url, f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')


class PostgresTemplate:
    def __init__(self, home: Path, url: str) -> None:
        self.home, self.url = home, url
        self.name = url.partition("?")[0].rsplit("/", 1)[1]
        _found(home, url)

    def fresh(self, folder: Path) -> PostgresPlace:
        name = f"label_dp_{secrets.token_hex(6)}"
        _clone(self.url, self.name, name)
        home = Path(shutil.copytree(self.home, folder / "home"))
        return PostgresPlace(home, self.url.replace(f"/{self.name}", f"/{name}"))


@contextmanager
def place(template: Template, folder: Path) -> Iterator[Place]:
    found = template.fresh(folder)
    try:
        yield found
    finally:
        found.remove()


def _found(home: Path, url: str | None) -> None:
    with LabelsParty(home, database_url=url, worker=False) as party:
        found_population(party.services)


def _copy(source: Path, target: Path) -> None:
    """Of an SQLite database, whole, also while it is in use."""
    for beside in ("", "-wal", "-shm"):
        Path(f"{target}{beside}").unlink(missing_ok=True)
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)


def _clone(url: str, source: str, target: str) -> None:
    _statements(
        url, f'DROP DATABASE IF EXISTS "{target}" WITH (FORCE)', f'CREATE DATABASE "{target}" TEMPLATE "{source}"'
    )


def _statements(url: str, *statements: str) -> None:
    import psycopg

    head, _, query = url.partition("?")
    server = head.rsplit("/", 1)[0] + "/postgres" + (f"?{query}" if query else "")
    with psycopg.connect(server, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)  # type: ignore[call-overload]  # names made here, no literals
