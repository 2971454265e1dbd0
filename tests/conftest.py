"""Fixtures that more than one folder of tests uses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# Workers share the cores: BLAS threads that wait by spinning took up to ten times the processor time of one. It must be
# set before numpy is imported, and holds for the programs that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# compiled once for all workers, homes and runs
os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "kernels"))

from tests.support import postgres
from tests.support.labels import LabelsParty


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str | None]:
    with postgres.server() as url:
        yield url


@pytest.fixture
def postgres_url(postgres_server: str | None) -> Iterator[str]:
    with postgres.database(postgres_server) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Each test that takes it runs on both engines."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'test.sqlite'}"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
def party(tmp_path: Path) -> Iterator[LabelsParty]:
    """A labels party on SQLite in a temporary home."""
    with LabelsParty(tmp_path / "labels-party") as started:
        yield started


@pytest.fixture
def party_on(database_url: str, tmp_path: Path) -> Iterator[LabelsParty]:
    """A labels party on each database engine."""
    with LabelsParty(tmp_path / "labels-party", database_url=database_url) as started:
        yield started
