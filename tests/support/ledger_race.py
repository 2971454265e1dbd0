"""Clients in processes of their own who spend from one batch as fast as they can.

`python -m tests.support.ledger_race URL POPULATION BATCH THREADS SPENDS` says "ready", waits for a line, then spends
one nano-ε SPENDS times in each of THREADS threads and prints how many were granted and how many refused.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from label_dp.audit.judged import JudgedStore
from label_dp.audit.store import utc_now
from label_dp.errors import BudgetExceeded
from label_dp.privacy import ZERO, Epsilon, EpsilonSplit
from label_dp.store.database import Database
from labels_party.ledger.populations import Populations
from labels_party.ledger.store import Ledger
from labels_party.notify.outbox import Outbox
from labels_party.storage.tables import audit_events

ROOT = Path(__file__).parents[2]
ONE = EpsilonSplit(ZERO, ZERO, Epsilon(1))


@dataclass(frozen=True)
class Outcome:
    granted: int
    refused: int


def spend(url: str, population: str, batch: str, threads: int, spends: int) -> Outcome:
    """What this process's clients got."""
    database = Database(url)
    audit = JudgedStore(audit_events, "labels-party")
    ledger = Ledger(audit, Outbox(utc_now))
    owner = database.read("population", lambda c: Populations(audit).get(c, population))

    def client(number: int) -> int:
        granted = 0
        for i in range(spends):
            release = f"rel_{os.getpid()}-{number}-{i}"
            try:
                database.write("charge", lambda c, r=release: ledger.charge(c, owner, batch, r, ONE, "race", {}))
                granted += 1
            except BudgetExceeded:
                pass
        return granted

    with ThreadPoolExecutor(threads) as pool:
        granted = sum(pool.map(client, range(threads)))
    database.dispose()
    return Outcome(granted, threads * spends - granted)


def race(url: str, population: str, batch: str, *, clients: int, spends: int, processes: int) -> list[Outcome]:
    """`clients` × `spends` attempts, spread over `processes` that begin together."""
    arguments = [url, population, batch, str(clients // processes), str(spends)]
    command = [sys.executable, "-m", "tests.support.ledger_race", *arguments]
    started = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    try:
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in started:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        told = [process.communicate()[0] for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    return [Outcome(*map(int, text.split())) for text in told]


if __name__ == "__main__":
    print("ready", flush=True)
    sys.stdin.readline()
    found = spend(*sys.argv[1:4], *map(int, sys.argv[4:6]))
    print(found.granted, found.refused)
