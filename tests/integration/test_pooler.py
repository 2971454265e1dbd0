"""PostgreSQL behind a pooler that gives each transaction another connection (PgBouncer in transaction mode): nothing of
a session outlives a transaction, and the driver's options can be set in the URL."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from label_dp.errors import InvalidSettings, Unavailable
from label_dp.store.database import IDLE_SECONDS, LOCK_SECONDS, Database, create_engine
from tests.support.serving import free_port

CALLS = 40  # far more than the driver's usual five, after which it would prepare a statement


def setting(connection: sa.Connection, name: str) -> str:
    return str(connection.execute(sa.text(f"SELECT current_setting('{name}')")).scalar_one())


def prepared(database: Database) -> int:
    """Statements that lie prepared at the server for a pooled connection, outside of any transaction of ours."""
    with closing(database.engine.raw_connection()) as connection:
        return int(connection.cursor().execute("SELECT count(*) FROM pg_prepared_statements").fetchone()[0])


def with_option(url: str, option: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}{option}"


@pytest.fixture
def opened(postgres_url: str) -> Iterator[Callable[[str], Database]]:
    made: list[Database] = []

    def opened(option: str) -> Database:
        made.append(Database(with_option(postgres_url, option) if option else postgres_url))
        return made[-1]

    yield opened
    for database in made:
        database.dispose()


@pytest.mark.parametrize(
    ("option", "stays"), [("", False), ("prepare_threshold=0", False), ("prepare_threshold=2", True)]
)
def test_no_statement_lies_prepared_unless_the_url_asks(
    opened: Callable[[str], Database], option: str, stays: bool
) -> None:
    database = opened(option)
    for _ in range(CALLS):
        assert database.read("r", lambda c: c.execute(sa.text("SELECT :n"), {"n": 7}).scalar()) == 7
        database.write("w", lambda c: c.execute(sa.text("SELECT :n"), {"n": 7}).scalar())
    assert (prepared(database) > 0) is stays


def test_settings_of_a_transaction_end_with_it(opened: Callable[[str], Database]) -> None:
    database = opened("")
    usual = database.read("r", lambda c: setting(c, "lock_timeout"))
    within = database.write(
        "w", lambda c: (setting(c, "lock_timeout"), setting(c, "idle_in_transaction_session_timeout"))
    )
    assert within == (f"{LOCK_SECONDS}s", f"{IDLE_SECONDS // 60}min")
    assert database.read("r", lambda c: setting(c, "idle_in_transaction_session_timeout")) == f"{IDLE_SECONDS // 60}min"
    with database.engine.connect() as bare:
        assert setting(bare, "lock_timeout") == usual != within[0]
        assert setting(bare, "idle_in_transaction_session_timeout") == "0"


@pytest.mark.parametrize("value", ["-1", "many", "1.5"])
def test_a_threshold_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(InvalidSettings, match="prepare_threshold"):
        create_engine(f"postgresql://nowhere/x?prepare_threshold={value}")


@pytest.mark.parametrize("option", ["autocommit=1", "row_factory=x", "nonsense=1"])
def test_an_option_that_postgresql_does_not_know_is_named(option: str) -> None:
    with pytest.raises(InvalidSettings, match=option.split("=", maxsplit=1)[0]):
        create_engine(f"postgresql://user:s3cret@nowhere/x?{option}")


def test_a_missing_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg.pq", None)
    with pytest.raises(InvalidSettings, match="pip install"):
        create_engine("postgresql://nowhere/x")


def test_a_server_that_does_not_answer_is_not_waited_for_without_end() -> None:
    _, options = create_engine("postgresql://nowhere/x?connect_timeout=2").dialect.create_connect_args(
        sa.make_url("postgresql+psycopg://nowhere/x?connect_timeout=2")
    )
    assert options["connect_timeout"] == "2"
    database = Database("postgresql://127.0.0.1:9/x")
    with pytest.raises(Unavailable):
        database.read("r", lambda c: None)


@pytest.fixture
def pooled(postgres_url: str, tmp_path: Path) -> Iterator[str]:
    """The URL of a pooler of two connections before the server. Skips, with the reason, where there is none."""
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("pgbouncer is not installed")
        pytest.skip("there is no pgbouncer here; apt-get install pgbouncer, and this test runs")
    real, port = sa.make_url(postgres_url), free_port()
    host = real.host or real.query.get("host")
    tmp_path.chmod(0o755)
    folder = tmp_path / "pooler"
    folder.mkdir()
    (folder / "users.txt").write_text(f'"{real.username}" ""\n')
    (folder / "b.ini").write_text(
        f"[databases]\n* = host={host} port={real.port or 5432} user={real.username}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\nauth_file = {folder}/users.txt\n"
        "pool_mode = transaction\ndefault_pool_size = 2\nunix_socket_dir =\n"
    )
    user = ["-u", "nobody"] if os.geteuid() == 0 else []
    process = subprocess.Popen([program, *user, folder / "b.ini"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield f"postgresql://{real.username}@127.0.0.1:{port}/{real.database}"
    finally:
        process.terminate()
        process.wait(20)


@pytest.mark.processes
def test_many_calls_behind_a_pooler(pooled: str) -> None:
    database = Database(pooled)
    for _ in range(100):
        try:
            database.read("up", lambda c: None)
            break
        except Unavailable:
            time.sleep(0.1)
    database.write("make", lambda c: c.execute(sa.text("CREATE TABLE t (n BIGINT)")) and None)
    database.write("fill", lambda c: c.execute(sa.text("INSERT INTO t VALUES (0)")) and None)

    def call(_: int) -> int:
        database.write("add", lambda c: c.execute(sa.text("UPDATE t SET n = n + :one"), {"one": 1}) and None)
        return int(database.read("look", lambda c: c.execute(sa.text("SELECT n FROM t")).scalar_one()))

    with ThreadPoolExecutor(8) as pool:
        assert max(pool.map(call, range(200))) == 200
    database.dispose()
