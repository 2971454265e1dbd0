"""Months in simulated time: a batch a day, taken in, sealed, released and purged, while disks fail and clocks jump."""

from __future__ import annotations

import random
import time
from pathlib import Path

import sqlalchemy as sa

from label_dp.store.database import Database
from labels_party.storage.tables import batches
from tests.soak.conftest import Scale
from tests.soak.report import Report
from tests.support.ledger_calls import found_population
from tests.support.ledger_faults import CRASH, DROP, FULL, LOSE
from tests.support.ledger_parties import Here
from tests.support.ledger_world import World

DAYS = 120  # of one world; then another begins, because every look at a world reads all of its batches
JUMPS = [-30, -1, 0, 2, 366]  # days by which a clock that is set, or was wrong, moves in a night
KEPT = 7  # batches, before the oldest is purged


class Nights:
    def __init__(self, party: Here, rng: random.Random) -> None:
        self.world, self.party, self.rng = World(party), party, rng
        self.faults, self.jumps = 0, 0

    def step(self, name: str, *arguments: object) -> None:
        """One call, in two of three with a fault somewhere in it; then the call again until it is answered."""
        if self.rng.random() < 2 / 3:
            self.party.arm(self.rng.choice([CRASH, DROP, LOSE, FULL]), self.rng.randrange(1, 13))
            self.faults += 1
        getattr(self.world, name)(*arguments)
        self.world.resolve()

    def night(self) -> None:
        self.party.clock.move(days=1)
        if self.rng.random() < 0.1:
            self.party.clock.move(days=self.rng.choice(JUMPS))
            self.jumps += 1
        known = set(self.world.batches)
        self.step("create", "public")
        (batch,) = set(self.world.batches) - known
        for part in range(3):
            self.step("ingest", batch, 4 * part, 4, self.rng.choice(["insert", "upsert"]))
        self.step("seal", batch)
        self.step("release", batch, "0.5", False)
        self.step("work")
        if self.rng.random() < 0.2:
            self.step("restart")
        self.world.check()
        standing = [name for name, found in self.world.batches.items() if found.state != "purged"]
        if len(standing) > KEPT and not self.world.due(standing[0]):
            self.step("purge", standing[0])


def _purged(database: Database) -> int:
    query = sa.select(sa.func.count()).where(batches.c.state == "purged")
    return int(database.read("purged", lambda c: c.scalar(query)) or 0)


def test_nights_with_failing_disks_and_clocks(database_url: str, report: Report, tmp_path: Path, scale: Scale) -> None:
    """As many worlds as the seconds of a part allow, each of DAYS days."""
    nights = faults = jumps = published = purged = 0
    began, rng = time.monotonic(), random.Random(scale.seed)
    party = Here(tmp_path / "home", database_url)
    found_population(party.look())
    try:
        while time.monotonic() - began < scale.seconds:
            world = Nights(party, rng)
            for _ in range(DAYS):
                world.night()
                nights += 1
                if time.monotonic() - began > scale.seconds:
                    break
            world.world.finish()
            faults, jumps = faults + world.faults, jumps + world.jumps
            published = len(world.world.digests)  # of the home, the nights of earlier worlds among them
        purged = _purged(party.look().database)
    finally:
        party.close()
        engine = party.look().database.dialect
        told = f"{published} releases, {purged} batches purged, {faults} faults, {jumps} jumps of the clock"
        report.row(max(nights, 1), nights, f"each night's release once, at its charge; {told}, {engine}")
    assert published == nights
    assert nights < KEPT or purged
