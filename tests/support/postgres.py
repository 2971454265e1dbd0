"""An empty PostgreSQL database for each test: on a reachable server, else one started here, else a stated skip."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.processes import gate
from tests.support.replayed_schemas import park

DEFAULT = "postgresql://postgres@127.0.0.1:5432/postgres"


def _reachable(url: str) -> bool:
    import psycopg

    try:
        psycopg.connect(url, connect_timeout=3).close()
    except psycopg.OperationalError:
        return False
    return True


def _run(*command: str | Path) -> None:
    with gate.kept(open=True):  # a server for all tests, whichever asks first
        subprocess.run(command, check=True, capture_output=True)


@contextmanager
def _own_server() -> Iterator[str | None]:
    """A private server from locally installed binaries, on a socket in a temporary folder; None if there are none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")) if Path("/usr/lib/postgresql").exists() else []
    initdb = shutil.which("initdb") or (str(found[-1]) if found else None)
    if initdb is None or os.geteuid() == 0:  # the server refuses to run as root
        yield None
        return
    bin_folder = Path(initdb).parent
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        _run(initdb, "-D", data, "-U", "postgres", "-A", "trust")
        options = f"-k {folder} -c listen_addresses=''"
        _run(bin_folder / "pg_ctl", "-D", data, "-o", options, "-w", "start")
        try:
            yield f"postgresql://postgres@/postgres?host={folder}"
        finally:
            _run(bin_folder / "pg_ctl", "-D", data, "-m", "immediate", "stop")


@contextmanager
def server() -> Iterator[str | None]:
    url = os.environ.get("TEST_POSTGRES_URL", DEFAULT)
    if _reachable(url):
        yield url
    else:
        with _own_server() as own:
            yield own


class Databases:
    """Databases of one process, each given to one test at a time, empty."""

    def __init__(self, server_url: str | None) -> None:
        self._server, self._all = server_url, list[str]()
        self._free: dict[bool, list[str]] = {True: [], False: []}

    @contextmanager
    def empty(self, *, bare: bool = False) -> Iterator[str]:
        """Its URL; skips with the reason where there is no server (fails in CI). `bare`: with nothing parked in it."""
        if self._server is None:
            reason = "no PostgreSQL server is reachable and none could be started; set TEST_POSTGRES_URL"
            if os.environ.get("CI") == "true":
                pytest.fail(reason)
            pytest.skip(reason)
        url = self._free[bare].pop() if self._free[bare] else self._made()
        try:
            yield url
        finally:
            park(url)
            self._free[bare].append(url)

    def _made(self) -> str:
        name = f"label_dp_{secrets.token_hex(6)}"
        self._statement(f'CREATE DATABASE "{name}"')
        # tests kill clients, never the server, so that no commit needs to wait for the disk
        self._statement(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
        self._all.append(name)
        head, _, query = str(self._server).partition("?")
        return head.rsplit("/", 1)[0] + f"/{name}" + (f"?{query}" if query else "")

    def close(self) -> None:
        while self._all:
            self._statement(f'DROP DATABASE IF EXISTS "{self._all.pop()}" WITH (FORCE)')

    def _statement(self, text: str) -> None:
        import psycopg

        with psycopg.connect(str(self._server), autocommit=True) as connection:
            connection.execute(text)  # type: ignore[call-overload]  # names made here, no literals
