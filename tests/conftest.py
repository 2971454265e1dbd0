"""Fixtures that more than one folder of tests uses."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterator
from pathlib import Path

import alembic.command
import hypothesis
import pytest

from tests.support.scratch import scratch

# Workers share the cores: BLAS threads that wait by spinning took up to ten times the processor time of one. It must be
# set before numpy is imported, and holds for the programs that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# compiled once for all workers, homes and runs
os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "kernels"))
os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", scratch())

from tests.support import object_store, postgres
from tests.support.labels import LabelsParty
from tests.support.one_process import as_in_production, one_process
from tests.support.processes import gate
from tests.support.replayed_schemas import replayed_schemas, upgrade_itself

# a deadline is of the wall clock, which others stretch
hypothesis.settings.register_profile("busy machines", deadline=None)
hypothesis.settings.load_profile("busy machines")

# servers of packages or programs that `make test` does without
OF_THE_FULL_SET = {"postgres_server", "s3_server"}
COLLECTED = pytest.StashKey[list[pytest.Item]]()


# a module that belongs to `make check` as a whole
LATER = re.compile(r"^pytestmark = pytest\.mark\.(extended|processes)\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`make test` does not import what it leaves out: the packages may not be installed, and it takes a while."""
    if "not extended" not in config.option.markexpr or not collection_path.match("test_*.py"):
        return None
    return LATER.search(collection_path.read_text(encoding="utf-8")) is not None or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if "torch" in fixtures:
            item.add_marker("torch")
        if fixtures & OF_THE_FULL_SET:
            item.add_marker("extended")
    config.stash[COLLECTED] = list(items)  # before `-m` leaves any out


def pytest_collection_finish() -> None:
    """What is imported by now stays: looking through it again and again took a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    with gate.kept(open=item.get_closest_marker("processes") is not None):
        return (yield)


@pytest.fixture(scope="session", autouse=True)
def _whole_session() -> Iterator[None]:
    with replayed_schemas(), one_process(), gate.watched():
        yield


@pytest.fixture(scope="session")
def collected(request: pytest.FixtureRequest) -> list[pytest.Item]:
    """Every test there is where the whole folder was asked for, whatever `-m` leaves out."""
    return request.config.stash[COLLECTED]


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str | None]:
    with postgres.server() as url:
        yield url


@pytest.fixture(scope="session")
def postgres_databases(postgres_server: str | None) -> Iterator[postgres.Databases]:
    made = postgres.Databases(postgres_server)
    yield made
    made.close()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[object_store.Server]:
    with object_store.server() as found:
        yield found


@pytest.fixture
def bucket(s3_server: object_store.Server, monkeypatch: pytest.MonkeyPatch) -> object_store.Room:
    """An empty room of an object store, with its credentials in the environment; whoever waits for it waits shortly."""
    from label_dp.store.objects import bucket as requests

    monkeypatch.setattr(requests, "LONGEST_PAUSE", 0.01)
    for name, value in object_store.CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    return s3_server.room()


@pytest.fixture
def migrations_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of migrations: nothing is replayed."""
    monkeypatch.setattr(alembic.command, "upgrade", upgrade_itself)


@pytest.fixture
def storage_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what waits for the disk: databases are made as they are in production."""
    as_in_production(monkeypatch)


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest, postgres_databases: postgres.Databases) -> Iterator[str]:
    with postgres_databases.empty(bare="migrations_themselves" in request.fixturenames) as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.extended)])
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
