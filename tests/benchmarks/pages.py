"""How long each page of both parties takes at 1,000 releases and 10⁶ audit events: `python -m tests.benchmarks.pages
[EVENTS]`.

The store is filled with rows as the product writes them, but not through it: a million transactions take hours. Chains
are not linked, so the page that verifies them is not asked for.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from label_dp.audit.events import CHARGED, PUBLISHED, REQUESTED, Event, Subject
from label_dp.privacy import EpsilonSplit
from labels_party.storage.tables import audit_events, batches, work
from tests.benchmarks.pages_of_features import features_pages
from tests.integration.test_four_eyes import ask, sealed
from tests.support.labels import LabelsParty
from tests.support.pages import Looker, signed_in

RELEASES, LIMIT_MS, TRIES = 1_000, 100, 5
PART = 20_000
KINDS = (REQUESTED, CHARGED, PUBLISHED)


def filled(party: LabelsParty, population: dict[str, Any], events: int) -> None:
    """A batch a release, a day each; one charge each, and other events up to `events`."""
    names = [f"bat_{i:024x}" for i in range(RELEASES)]
    days = [f"{2024 + i // 336}-{1 + i // 28 % 12:02d}-{1 + i % 28:02d}T00:00:00Z" for i in range(RELEASES)]
    split = EpsilonSplit.from_json({"clip": "0", "prior": "0", "randomize": "1", "total": "1", "delta": "0"})
    common = {"label": "revenue", "presence": "public", "version": 1, "n": 100_000, "state": "sealed"}
    rows = [
        {"id": name, "population": population["id"], "created": day, "sealed": day, "seal_order": i + 10} | common
        for i, (name, day) in enumerate(zip(names, days, strict=True))
    ]
    asked = {
        "kind": "release",
        "state": "published",
        "plan": {"prior": "not used"},
        "asked": {"mechanism": "one-bit"},
        "attempt": 1,
        "epsilon": split.as_json(),
        "epsilon_nano": split.total.nano,
        "audiences": ["features-party"],
        "requested_by": "apikey:x",
        "inputs": "",
        "inputs_mac": "",
        "features": "",
        "sha256": "0" * 64,
    }
    works = [
        {"id": f"rel_{i:024x}", "batch": names[i], "created": days[i], "published": days[i]} | asked
        for i in range(RELEASES)
    ]

    @cache
    def body(kind: str, at: int) -> bytes:
        """Of an event number 1, which stands in it once."""
        subject = Subject(population["id"], population["name"], "revenue", names[at], f"rel_{at:024x}")
        given = {"split": split} if kind == CHARGED else {}
        told = Event(kind, subject, audiences=("features-party",), actor="apikey:x", **given)
        placed = told.placed(store="0" * 32, party="labels-party", sequence=1, previous="0" * 64, time=days[at])
        return placed.body()

    def event(sequence: int, kind: str, at: int) -> dict[str, Any]:
        return {
            "sequence": sequence,
            "digest": hashlib.sha256(str(sequence).encode()).hexdigest(),
            "body": body(kind, at).replace(b'"sequence":1,', b'"sequence":%d,' % sequence),
            "kind": kind,
            "population": population["id"],
            "batch": names[at],
            "work": f"rel_{at:024x}",
            "epsilon_nano": split.total.nano if kind == CHARGED else 0,
            "delta_atto": 0,
            "at": days[at],
        }

    def write(connection: sa.Connection) -> None:
        connection.execute(sa.insert(batches), rows)
        connection.execute(sa.insert(work), works)

    database = party.services.database
    database.write("fill", write)
    first = database.read("last", party.services.audit.last) + 1
    for start in range(0, events, PART):
        part = [
            event(first + i, KINDS[i % 3] if i < 3 * RELEASES else REQUESTED, i // 3 % RELEASES)
            for i in range(start, min(start + PART, events))
        ]
        database.write("fill", lambda c, part=part: c.execute(sa.insert(audit_events), part) and None)


def drawn(party: LabelsParty) -> str:
    """A release that was really made: its page reads its plan and its files."""
    owner = party.client("owner")
    batch = sealed(owner, {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "4"})
    found = str(ask(owner, batch)["id"])
    party.services.worker.drain()
    return found


def slow(person: Looker, paths: Sequence[str]) -> list[str]:
    """Those paths whose best answer takes longer than the limit; prints the best and the worst of each."""
    found = []
    for path in paths:
        spent = []
        for _ in range(TRIES):
            start = time.perf_counter()
            status = person.get(path).status_code
            spent.append(1e3 * (time.perf_counter() - start))
            assert status == 200, (path, status)
        print(f"{path:<60} {min(spent):7.1f} {max(spent):7.1f}", flush=True)
        found += [path] if min(spent) > LIMIT_MS else []
    return found


def of_labels_party(folder: Path, events: int) -> list[str]:
    with LabelsParty(folder / "home", worker=False) as party:
        owner = party.client("owner")
        rules = {"name": "shop", "label": "revenue", "domain": "0:400", "lifetime_epsilon": "4"}
        population = owner.post("/v1/populations", json=rules).json()
        release = drawn(party)
        filled(party, population, events)
        paths = [
            *("/overview", f"/populations/{population['id']}", "/given", "/given?audience=features-party"),
            *(f"/releases/{release}", "/approvals", "/erasures?population=shop", "/plan", "/audit"),
            *(f"/plan?population=shop&e={place}&s=6" for place in (10, 15)),
            *("/audit?kind=release-charged", f"/audit?work={release}", f"/audit?population={population['id']}"),
        ]
        return slow(signed_in(owner), paths)


def main(events: int) -> None:
    print(f"{RELEASES:,} releases, {events:,} audit events; best and worst of {TRIES} answers, milliseconds")
    with tempfile.TemporaryDirectory() as folder:
        found = of_labels_party(Path(folder), events)
    with tempfile.TemporaryDirectory() as folder, features_pages(Path(folder), RELEASES, events) as asked:
        found += [path for person, paths in asked for path in slow(person, paths)]
    if found:
        raise SystemExit(f"slower than {LIMIT_MS} ms: {', '.join(found)}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
