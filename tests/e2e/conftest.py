"""One demo, played once, for whoever looks at what it left."""

from __future__ import annotations

import fcntl
import os
import pickle

import pytest

from tests.support.demo import Told, run

CLICKS = 4000


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Nobody changes it. Of several processes of one test run the first plays it, and the others wait for it."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    where, kept = shared / "told", shared / "told.pickle"
    with (shared / "told.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if kept.exists():
            found: Told = pickle.loads(kept.read_bytes())
            return found
        where.mkdir()
        done = run(where, "--clicks", str(CLICKS))
        assert done.returncode == 0, done.stderr
        made = Told(where, CLICKS, done)
        kept.write_bytes(pickle.dumps(made))
        return made
