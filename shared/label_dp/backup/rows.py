"""Rows of a database as text independent of its engine.

A table is a member `database/TABLE.jsonl`: its column names, then a row a line. JSON columns stay text, bytes are in
base64. All tables of the database are written, in its own revision.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.errors import InvalidFile

VERSION_TABLE = "alembic_version"
AT_ONCE = 500


def dump(connection: Connection, folder: Path, without: frozenset[str]) -> None:
    """Write every table except `without` into `folder`, from the connection's single snapshot."""
    metadata = _tables(connection)
    for table in metadata.sorted_tables:
        if table.name in without or table.name == VERSION_TABLE:
            continue
        columns = list(table.c)
        # JSON as the database has it distinguishes JSON null from a missing value
        texts = [sa.cast(c, sa.Text) if _is_json(c) else c for c in columns]
        query = sa.select(*texts).order_by(*table.primary_key.columns)
        rows = connection.execution_options(yield_per=AT_ONCE).execute(query)
        with (folder / f"{table.name}.jsonl").open("w", encoding="utf-8") as out:
            out.write(json.dumps([column.name for column in columns]) + "\n")
            for row in rows:
                out.write(json.dumps([_out(value) for value in row], ensure_ascii=False) + "\n")


def load(connection: Connection, folder: Path) -> None:
    """Insert the output of `dump` into the empty tables of the same revision. Raises InvalidFile."""
    metadata = _tables(connection)
    names = {path.stem for path in folder.glob("*.jsonl")}
    if unknown := names - set(metadata.tables):
        raise InvalidFile(f"The backup has a table '{min(unknown)}' that its revision does not have; nothing was made.")
    for table in metadata.sorted_tables:
        if table.name not in names:
            continue
        with (folder / f"{table.name}.jsonl").open(encoding="utf-8") as lines:
            columns = _columns(table, json.loads(next(lines)))
            values = {column.name: _bound(column, connection.dialect.name) for column in columns}
            insert = sa.insert(table).values(values)
            rows = ({f"v_{c.name}": _in(c, v) for c, v in zip(columns, json.loads(row), strict=True)} for row in lines)
            for part in _parts(rows):
                connection.execute(insert, part)


def read(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of one member, bytes still as text."""
    each = iter(lines)
    names = json.loads(next(each))
    for line in each:
        yield dict(zip(names, json.loads(line), strict=True))


def bytes_of(text: str) -> bytes:
    """Decode base64. Raises ValueError."""
    return base64.b64decode(text, validate=True)


def _tables(connection: Connection) -> sa.MetaData:
    metadata = sa.MetaData()
    metadata.reflect(connection)
    return metadata


def _is_json(column: sa.Column[Any]) -> bool:
    return isinstance(column.type, sa.JSON)


def _bound(column: sa.Column[Any], dialect: str) -> sa.ColumnElement[Any]:
    name = f"v_{column.name}"
    if not _is_json(column):
        return sa.bindparam(name, type_=column.type)
    plain = sa.bindparam(name, type_=sa.Text())
    # SQLite would turn text into a number in a cast to a type of that name
    return plain if dialect == "sqlite" else sa.cast(plain, column.type)


def _columns(table: sa.Table, names: list[str]) -> list[sa.Column[Any]]:
    if unknown := set(names) - set(table.c.keys()):
        raise InvalidFile(f"The backup's table '{table.name}' has another column '{min(unknown)}'; nothing was made.")
    return [table.c[name] for name in names]


def _out(value: Any) -> Any:
    return base64.b64encode(bytes(value)).decode() if isinstance(value, bytes | memoryview) else value


def _in(column: sa.Column[Any], value: Any) -> Any:
    return bytes_of(value) if value is not None and isinstance(column.type, sa.LargeBinary) else value


def _parts(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    part: list[dict[str, Any]] = []
    for row in rows:
        part.append(row)
        if len(part) == AT_ONCE:
            yield part
            part = []
    if part:
        yield part
