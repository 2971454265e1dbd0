"""One demo, played once, for whoever looks at what it left; the commands of documents."""

from __future__ import annotations

import fcntl
import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.demo import Told, played
from tests.support.forked import forked_commands

CLICKS = 4000


@pytest.fixture(scope="session")
def programs() -> Iterator[Path]:
    """A folder of both console commands, quick to start, to be the first of PATH."""
    with forked_commands() as folder:
        yield folder


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
        made = played(where, CLICKS)
        kept.write_bytes(pickle.dumps(made))
        return made
