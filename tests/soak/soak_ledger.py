"""The ledger under load and under faults: the cap of 64 clients on both databases, and a thousand random kills."""

from __future__ import annotations

import random
import time
from pathlib import Path

from tests.soak.conftest import Scale
from tests.soak.report import Report
from tests.support.labels import LabelsParty, label_table
from tests.support.ledger_calls import found_population
from tests.support.ledger_kills import NAMED, random_kills, replayed
from tests.support.ledger_machine import play
from tests.support.ledger_parties import There
from tests.support.ledger_places import PostgresTemplate, SqliteTemplate, Template
from tests.support.ledger_process import Nursery
from tests.support.ledger_race import race
from tests.support.ledger_world import World

CLIENTS, SPENDS, CAP, PROCESSES = 64, 1000, 1000, 4
KILLS, PER_WORLD = 1000, 50  # on each database
SEQUENCES = 10  # at a time


def test_spends_against_a_cap(database_url: str, report: Report, tmp_path: Path) -> None:
    """Not bounded by the seconds of a part: the count is the point."""
    with LabelsParty(tmp_path / "home", database_url=database_url, worker=False) as party:
        batch = party.sealed_batch(label_table(5), lifetime="0.000001")  # 1,000 nano-ε
        found = race(party.settings.url, "shop", batch, clients=CLIENTS, spends=SPENDS, processes=PROCESSES)
        granted, tried = sum(f.granted for f in found), sum(f.granted + f.refused for f in found)
        limit = f"{granted:,} granted of a cap of {CAP:,}, {party.services.database.dialect}"
        report.row(tried, tried - abs(granted - CAP), limit)
        assert (granted, tried) == (CAP, CLIENTS * SPENDS)
        assert party.spent(batch) == "0.000001"
        count, _ = party.services.database.read("v", party.services.audit.verify)
        assert count == 3 + CAP


def _founded(home: Path, url: str | None) -> Path:
    with LabelsParty(home, database_url=url, worker=False) as party:
        found_population(party.services)
    return home


def test_kills_at_named_points(database_url: str, report: Report, tmp_path: Path, scale: Scale) -> None:
    survived = 0
    with Nursery() as nursery:
        home = _founded(tmp_path / "home", database_url)
        party = There(nursery, home, random.Random(scale.seed), database_url)
        try:
            replayed(World(party), party)
            survived = party.kills
        finally:
            party.close()
            report.row(len(NAMED), survived, f"charged once, finished or refused, {database_url.partition(':')[0]}")


def test_random_kills(database_url: str, report: Report, tmp_path: Path, scale: Scale) -> None:
    """Not bounded by the seconds of a part: the count is the point. A world is `random_kills` with its own seed."""
    kills, seed, published = 0, scale.seed, 0
    home = _founded(tmp_path / "home", database_url)
    try:
        with Nursery() as nursery:
            while kills < KILLS:
                party = There(nursery, home, random.Random(seed), database_url)
                try:
                    world = random_kills(party, kills=PER_WORLD, calls=10 * PER_WORLD)
                finally:
                    party.close()
                kills, published, seed = kills + party.kills, len(world.digests), seed + 1
    finally:
        limit = f"charged once, finished or refused; {published} published, {database_url.partition(':')[0]}"
        report.row(max(kills, 1), kills, f"{limit} (world's seed {seed})")


def test_sequences_of_calls_and_faults(database_url: str, report: Report, tmp_path: Path, scale: Scale) -> None:
    """The machine of the integration tests, as long as the seconds of a part allow."""
    template: Template
    if database_url.startswith("sqlite"):
        template = SqliteTemplate(tmp_path / "template")
    else:
        template = PostgresTemplate(tmp_path / "template", database_url)
    tried, survived, began = 0, 0, time.monotonic()
    try:
        while time.monotonic() - began < scale.seconds:
            tried += SEQUENCES
            play(template, SEQUENCES)
            survived = tried
    finally:
        limit = "what was answered is true, what was refused is not, nothing is charged twice"
        report.row(tried, survived, f"{limit}, {database_url.partition(':')[0]}")
