"""What databases, folders and HTTP clients of tests in one process share, and what they do not wait for.

Tests kill processes, never the machine, so that nothing needs to be on the disk. SQL is compiled once, not once for
each of the many databases; certificate authorities are read once, and commands are built once. `test_database` asks for
`storage_itself`.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import certifi
import pytest
from sqlalchemy.engine import Engine

from label_dp.cli import startup
from label_dp.store import database

sqlite_connect_itself = database._sqlite_connect
create_engine_itself = database.create_engine
command_itself = startup._command
default_context_itself = ssl.create_default_context


class Statements(dict[Any, Any]):
    """Compiled statements by dialect and what was compiled; all engines of one dialect are set up alike."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get((type(key[0]), *key[1:]), default)

    def __setitem__(self, key: Any, compiled: Any) -> None:
        super().__setitem__((type(key[0]), *key[1:]), compiled)


@cache
def _public_authorities() -> ssl.SSLContext:
    return default_context_itself(cafile=certifi.where())


def _default_context(*given: Any, **named: Any) -> ssl.SSLContext:
    """Reading the public authorities takes as long as a call."""
    if not given and named == {"cafile": certifi.where()}:
        return _public_authorities()
    return default_context_itself(*given, **named)


_commands: dict[tuple[int, ...], tuple[Any, ...]] = {}


def _command(app: Any) -> Any:
    """The commands of an app, built once for all that it has, which is kept, so that no other takes its ids."""
    parts = (app, *app.registered_commands)
    numbers = tuple(map(id, parts))
    if numbers not in _commands:
        _commands[numbers] = (command_itself(app), *parts)
    return _commands[numbers][0]


@contextmanager
def one_process() -> Iterator[None]:
    statements = Statements()

    def create_engine(url: str) -> Engine:
        engine = create_engine_itself(url)
        engine.update_execution_options(compiled_cache=statements)
        return engine

    def sqlite_connect(connection: Any, record: Any) -> None:
        sqlite_connect_itself(connection, record)
        connection.execute("PRAGMA synchronous=OFF")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "create_engine", create_engine)
        patch.setattr(database, "_sqlite_connect", sqlite_connect)
        patch.setattr(os, "fsync", lambda _file: None)
        patch.setattr(ssl, "create_default_context", _default_context)
        patch.setattr(startup, "_command", _command)
        patch.setattr(startup, "_spare_collections", lambda: None)  # the process goes on
        yield


def as_in_production(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(database, "create_engine", create_engine_itself)
    patch.setattr(database, "_sqlite_connect", sqlite_connect_itself)
