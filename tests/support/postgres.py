"""A throwaway PostgreSQL database per test: on a reachable server, else one started here, else a stated skip."""

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

DEFAULT = "postgresql://postgres@127.0.0.1:5432/postgres"


def _reachable(url: str) -> bool:
    import psycopg

    try:
        psycopg.connect(url, connect_timeout=3).close()
    except psycopg.OperationalError:
        return False
    return True


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
        subprocess.run([initdb, "-D", data, "-U", "postgres", "-A", "trust"], check=True, capture_output=True)
        options = f"-k {folder} -c listen_addresses=''"
        subprocess.run(
            [bin_folder / "pg_ctl", "-D", data, "-o", options, "-w", "start"], check=True, capture_output=True
        )
        try:
            yield f"postgresql://postgres@/postgres?host={folder}"
        finally:
            subprocess.run(
                [bin_folder / "pg_ctl", "-D", data, "-m", "immediate", "stop"], check=True, capture_output=True
            )


@contextmanager
def server() -> Iterator[str | None]:
    url = os.environ.get("TEST_POSTGRES_URL", DEFAULT)
    if _reachable(url):
        yield url
    else:
        with _own_server() as own:
            yield own


@contextmanager
def database(server_url: str | None) -> Iterator[str]:
    """URL of a fresh database, dropped afterwards; skips with the reason where there is no server (fails in CI)."""
    if server_url is None:
        reason = "no PostgreSQL server is reachable and none could be started; set TEST_POSTGRES_URL"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    import psycopg

    name = f"label_dp_{secrets.token_hex(6)}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    head, _, query = server_url.partition("?")
    try:
        yield head.rsplit("/", 1)[0] + f"/{name}" + (f"?{query}" if query else "")
    finally:
        with psycopg.connect(server_url, autocommit=True) as connection:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
