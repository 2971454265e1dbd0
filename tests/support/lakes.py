"""Tables of Delta and Iceberg for tests: a catalog, addresses in an object store, and the rows at an address."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.utils.config import Config

from label_dp.columnar.parts import TableParts
from label_dp.store.table_files import table_at
from tests.support.object_store import Room


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """A file catalog `lake` with the namespace `shop`."""
    (tmp_path / "warehouse").mkdir()
    for name, value in {
        "TYPE": "sql",
        "URI": f"sqlite:///{tmp_path}/catalog.db",
        "WAREHOUSE": f"file://{tmp_path}/warehouse",
    }.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it is read once a process
    found = load_catalog("lake")
    found.create_namespace("shop")
    return found


def address(room: Room, key: str) -> str:
    """Of an object or a folder in the room."""
    url, _, query = room.url.partition("?")
    return f"{url}/{key}?{query}"


def rows_of(at: str) -> list[Any]:
    """In order of their ids."""
    found = table_at(at)
    assert isinstance(found, TableParts)
    return sorted(pa.concat_tables(found.tables()).to_pylist(), key=lambda row: str(row["id"]))
