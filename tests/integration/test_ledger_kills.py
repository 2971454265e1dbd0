"""The same with real processes and SIGKILL: at every named fault point, and at random moments."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support import object_store
from tests.support.ledger_kills import NAMED, random_kills, replayed
from tests.support.ledger_kills import nursery as nursery
from tests.support.ledger_kills import template as template
from tests.support.ledger_parties import There
from tests.support.ledger_places import SqliteTemplate
from tests.support.ledger_process import Nursery
from tests.support.ledger_world import World

pytestmark = pytest.mark.processes


def test_killed_at_every_named_point_in_turn(nursery: Nursery, template: SqliteTemplate, tmp_path: Path) -> None:
    """One life of a batch, in which every call is killed at each of its points; the soak has PostgreSQL as well."""
    party = There(nursery, template.fresh(tmp_path).home, random.Random(0))
    try:
        replayed(World(party), party)
        assert party.kills == len(NAMED)
    finally:
        party.close()


def test_killed_with_an_object_store(
    nursery: Nursery, template: SqliteTemplate, bucket: object_store.Room, tmp_path: Path
) -> None:
    """At each named point, and at random moments, of which some fall into requests to the store."""
    party = There(nursery, template.fresh(tmp_path).home, random.Random(3), objects=bucket.url)
    try:
        replayed(World(party), party)
        assert party.kills == len(NAMED)
        assert random_kills(party, kills=len(NAMED) + 5, calls=40).batches
        assert bucket.keys("labels")
        assert bucket.keys("work")
        assert party.kills >= len(NAMED) + 2
    finally:
        party.close()


def test_killed_at_random_moments(nursery: Nursery, template: SqliteTemplate, tmp_path: Path) -> None:
    party = There(nursery, template.fresh(tmp_path).home, random.Random(7))
    try:
        world = random_kills(party, kills=8, calls=60)
        assert party.kills >= 3
        assert world.batches
    finally:
        party.close()
