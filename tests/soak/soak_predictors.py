"""Predictors asked at once by several processes, on both databases: what is asked twice is drawn and charged once."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.soak.conftest import Scale
from tests.soak.report import Report
from tests.support.labels import LabelsParty
from tests.support.ledger_calls import found_population
from tests.support.ledger_process import Child, Nursery, Refused, Start

PROCESSES, EACH_PRICE, CAP = 4, "0.0001", "0.0012"
QUERIES = [i / 2 for i in range(20)]


@contextmanager
def children(home: Path, url: str) -> Iterator[list[Child]]:
    with Nursery() as nursery:
        yield [nursery.start(Start(str(home), url)) for _ in range(PROCESSES)]


def test_predictors_asked_at_once(database_url: str, report: Report, tmp_path: Path, scale: Scale) -> None:
    """Several processes ask the same queries in orders of their own; the cap pays for 12 of 20."""
    home, rng = tmp_path / "home", random.Random(scale.seed)
    with LabelsParty(home, database_url=database_url, worker=False) as party:
        found_population(party.services)
    asked = rounds = wrong = 0
    with children(home, database_url) as workers:
        owner, end = workers[0], time.monotonic() + scale.seconds
        while time.monotonic() < end:
            rounds += 1
            batch = owner.call("create", "public", key=f"b{rounds}")[1]["id"]
            ids = [f"{batch}-{i}" for i in range(6)]
            owner.call("ingest", batch, ids, 3, "insert", key=f"i{rounds}")
            owner.call("seal", batch, key=f"s{rounds}")
            owner.call("features", batch, ids, key=f"f{rounds}")
            predictor = owner.call("predictor", batch, EACH_PRICE, CAP, False, key=f"p{rounds}")[1]["id"]
            for worker in workers:  # they race for its training as well
                worker.begin("work", key="work")
            trained = sum(worker.answer() for worker in workers)
            orders = [rng.sample(QUERIES, len(QUERIES)) for _ in workers]
            given: dict[float, set[str]] = {}
            for step in range(len(QUERIES)):
                for worker, order in zip(workers, orders, strict=True):
                    worker.begin("predict", batch, predictor, order[step], key="predict")
                for worker, order in zip(workers, orders, strict=True):
                    asked += 1
                    try:
                        answer = worker.answer()[1]["sha256"]
                        given.setdefault(order[step], set()).add(answer)
                    except Refused as refused:
                        wrong += refused.code != "budget-exceeded"
            wrong += (trained, len(given)) != (1, 12) or any(len(found) != 1 for found in given.values())
    with LabelsParty(home, database_url=database_url, worker=False) as party:
        s = party.services
        shop = s.database.read("p", lambda c: s.populations.get(c, "shop"))
        batches = s.database.read("b", lambda c: s.batches.of_population(c, shop.id))
        wrong += sum(party.spent(batch.id) != CAP for batch in batches)
    limit = f"{rounds:,} predictors, each drawn and charged 12 times by {PROCESSES} processes, {s.database.dialect}"
    report.row(asked, asked - wrong, limit)
    assert rounds
    assert wrong == 0
