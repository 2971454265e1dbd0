"""Calls that wait for the database's only writer: other keys, probes and sign-ins' looks do not wait with them."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from pathlib import Path

import httpx
import pytest

from label_dp.store import database
from tests.support.labels import LabelsParty
from tests.support.serving import serving

pytestmark = pytest.mark.extended

WRITERS = 60  # more than the usual forty threads, and than connections of a pool
QUICK = 5.0  # seconds; a writer waits six times as long


def test_whoever_reads_waits_for_no_writer(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        party = stack.enter_context(LabelsParty(tmp_path / "home", worker=False))
        owner, auditor = (dict(party.client(role).headers) for role in ("owner", "auditor"))
        url = stack.enter_context(serving(party.application))
        lock = sqlite3.connect(party.home / "labels-party.sqlite", isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        threads = [threading.Thread(target=_declares, args=(url, owner, number)) for number in range(WRITERS)]
        try:
            for thread in threads:
                thread.start()
            time.sleep(1)
            for path in ("/v1/populations", "/readyz", "/overview", "/metrics"):
                began = time.monotonic()
                answer = httpx.get(url + path, headers=auditor, timeout=QUICK, trust_env=False)
                assert answer.status_code in (200, 303), path
                assert time.monotonic() - began < QUICK, path
        finally:
            lock.execute("ROLLBACK")
            for thread in threads:
                thread.join(60)
        assert len(httpx.get(f"{url}/v1/populations", headers=owner, trust_env=False).json()) == WRITERS  # in turn


def _declares(url: str, owner: dict[str, str], number: int) -> None:
    declared = {"name": f"p{number}", "label": "y", "domain": "0:3", "lifetime_epsilon": "1"}
    with contextlib.suppress(httpx.HTTPError):
        httpx.post(f"{url}/v1/populations", json=declared, headers=owner, timeout=60, trust_env=False)


def test_a_writer_that_waits_too_long_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "LOCK_SECONDS", 0.2)
    monkeypatch.setattr(database, "WRITERS", 1)
    store = database.Database(f"sqlite:///{tmp_path / 'd.sqlite'}")
    entered, leave = threading.Event(), threading.Event()

    def held(_: object) -> None:
        entered.set()
        leave.wait(10)

    first = threading.Thread(target=store.write, args=("first", held))
    first.start()
    entered.wait(10)
    with pytest.raises(database.Unavailable, match="Too many calls waited to write when 'second' was due"):
        store.write("second", lambda _: None)
    leave.set()
    first.join(10)
    store.write("third", lambda _: None)
    store.dispose()
