"""What becomes of stored objects when the transaction that names them ends in this way or that."""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from label_dp.errors import Conflict, Unavailable
from label_dp.store.database import Database
from label_dp.store.idempotency import NO_KEY, IdempotencyKeys, IdempotentCall, Reply, idempotency_table
from label_dp.store.objects.folder import FolderObjects
from labels_party.labels.batches import StaleBatch
from labels_party.labels.changes import commit, until_current
from labels_party.labels.vault import LabelVault

REPLY: Reply = 200, {"done": True}


class World:
    def __init__(self, folder: Path) -> None:
        metadata = sa.MetaData()
        table = idempotency_table(metadata)
        self.vault = LabelVault(FolderObjects(folder / "labels"), lambda _: bytes(32))
        self.database = Database(f"sqlite:///{folder / 'db'}")
        self.database.write("create", lambda c: metadata.create_all(c))
        mac = partial(hmac.new, b"secret", digestmod="sha256")
        self.keys = IdempotencyKeys(self.database, table, mac)

    def call(self) -> IdempotentCall:
        return self.keys.call("caller", "key", "POST /x", lambda: b"body")

    def commit(self, effect: Any, call: IdempotentCall = NO_KEY) -> Reply:
        """`effect` with one object written for it, and one that another attempt may still name."""
        for key in ("b/old", "b/written", "b/held"):
            self.vault.put_run(key, np.zeros(1, np.uint64), np.zeros(1, np.uint64))
        return commit(self.database, self.vault, "change", call, effect, ["b/written"], ["b/held"])

    def left(self) -> set[str]:
        return {key.removeprefix("b/") for key in self.vault.keys("b/")}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    found = World(tmp_path)
    yield found
    found.database.dispose()


def test_what_is_replaced_goes_after_the_commit(world: World) -> None:
    assert world.commit(lambda _: (REPLY, ["b/old"])) == REPLY
    assert world.left() == {"written", "held"}


def test_a_refusal_leaves_what_the_next_attempt_may_name(world: World) -> None:
    def refused(_: object) -> Any:
        raise Conflict("no")

    with pytest.raises(Conflict):
        world.commit(refused)
    assert world.left() == {"old", "held"}


def test_where_the_commit_may_have_gone_through_everything_stays(world: World) -> None:
    def lost(_: object) -> Any:
        raise Unavailable("it is not known")

    with pytest.raises(Unavailable):
        world.commit(lost)
    assert world.left() == {"old", "written", "held"}


def test_a_call_that_came_before_is_answered_again_and_names_nothing_new(world: World) -> None:
    assert world.commit(lambda _: (REPLY, []), world.call()) == REPLY
    assert world.left() == {"old", "written", "held"}
    assert world.commit(lambda _: pytest.fail("a second effect"), world.call()) == REPLY
    assert world.left() == {"old"}


def test_an_attempt_is_repeated_until_it_fits_and_not_for_ever() -> None:
    attempts = iter([StaleBatch("an upload came first"), FileNotFoundError("a run was merged away"), None])
    assert until_current(lambda: _raise(next(attempts)) or "done", 3, "busy") == "done"
    with pytest.raises(Unavailable, match="busy"):
        until_current(lambda: _raise(StaleBatch("always")), 3, "busy")
    with pytest.raises(Conflict, match="no"):
        until_current(lambda: _raise(Conflict("no")), 3, "busy")


def _raise(error: Exception | None) -> Any:
    if error is not None:
        raise error
