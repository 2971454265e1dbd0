"""Every route × (no key, wrong role, right role) × (no body … one that never ends), against real processes."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import features_party.api.app
from deploy.demo.services import Service
from features_party.bootstrap import ROLES as FEATURES_ROLES
from labels_party.bootstrap import ROLES as LABELS_ROLES
from tests.soak.conftest import RESULTS, Scale
from tests.soak.report import Report
from tests.support.callers import AT_ONCE, BODIES, KEYS, MIB, Attempt, Process, attempt, calls_of, filled, waits
from tests.support.labels import LabelsParty
from tests.support.messages import features_party as features_services

MOST_GROWN = 100 * MIB  # without a key for the call
MOST_WAITED = 0.1  # seconds, besides what an idle service takes in the same run
MAX_BODY = 96 * MIB


@contextmanager
def running(name: str, roles: tuple[str, ...], folder: Path) -> Iterator[tuple[Service, dict[str, str], int]]:
    party = Service(
        f"{name}-party", f"{name.upper()}_PARTY_", folder / name, folder / f"{name}.log", folder / "numba",
        {"MAX_BODY_BYTES": str(MAX_BODY)},
    )  # fmt: skip
    keys = {}
    for role in roles:
        audience = ("--audience", "features-party") if role == "features" else ()
        keys[role] = party.run("apikey", "create", "--role", role, *audience).split()[0]
    party.launch()
    try:
        party.await_ready()
        assert party._process is not None
        yield party, keys, party._process.pid
    finally:
        party.stop()


def objects_of(party: Service, keys: dict[str, str]) -> dict[str, str]:
    """A population and an open batch, where the service has them."""
    if "owner" not in keys:
        return {}
    with httpx.Client(base_url=f"{party.url}/v1", headers={"Authorization": f"Bearer {keys['owner']}"}) as owner:
        declared = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "5"}
        population = owner.post("/populations", json=declared).json()["id"]
        batch = owner.post("/populations/shop/batches", json={"presence": "public"}).json()["id"]
    return {"population": population, "batch": batch}


@pytest.mark.parametrize("name", ["labels", "features"])
def test_callers_cost_nothing_without_a_key(name: str, scale: Scale, report: Report, tmp_path: Path) -> None:
    if name == "labels":
        with LabelsParty(tmp_path / "app") as labels:
            calls = calls_of(labels.client().app)
        roles: tuple[str, ...] = LABELS_ROLES
    else:
        services = features_services(tmp_path / "app")
        calls, roles = calls_of(features_party.api.app.create_app(services)), FEATURES_ROLES
        services.close()
    rng, found = random.Random(scale.seed), list[Attempt]()
    every = [(call, key, body) for call in calls for key in KEYS for body in BODIES]
    with running(name, roles, tmp_path) as (party, keys, pid):
        port = int(party.url.rpartition(":")[2])
        objects, service = objects_of(party, keys), Process(port, pid)
        with waits(port) as waiting:
            start = time.monotonic()
            time.sleep(min(3.0, scale.seconds / 5))
            idle = waiting.longest(start, time.monotonic())
            rng.shuffle(every)  # a short run tries some of each
            end = time.monotonic() + scale.seconds
            for (method, path, allowed), key, body in every:
                if time.monotonic() > end:
                    break
                secret = {
                    "no key": None,
                    "wrong role": next((k for r, k in keys.items() if allowed is not None and r not in allowed), None),
                    "right role": next((k for r, k in keys.items() if allowed is not None and r in allowed), None),
                }[key]
                if key != "no key" and secret is None:
                    continue  # a path without roles, or one for all of them
                again = 3  # a busy machine makes anybody wait once; what a caller does to others, it does each time
                while again:
                    last = attempt(service, waiting, (method, path), filled(path, objects), (key, secret), body)
                    again = again - 1 if last.waited > MOST_WAITED + idle else 0
                found.append(last)
    keep(name, found, idle)
    without = [a for a in found if a.key != "right role"]
    grown, waited = max(a.grown for a in without), max(a.waited for a in without)
    with_key = max((a.grown for a in found if a.key == "right role"), default=0)
    survived = sum(a.grown <= MOST_GROWN and a.waited <= MOST_WAITED + idle for a in without)
    report.row(len(without), survived, f"{MOST_GROWN / MIB:.0f} MiB, {MOST_WAITED * 1000:.0f} ms over idle")
    report.finding(
        f"4 bodies of callers without a key, {name} party",
        tried=f"{len(found)} of route × key × body, {AT_ONCE} of each at once; [{{}},…] up to 64 MiB, and endless",
        before="64 MiB to any path outside /v1 took 2 GB and stalled /healthz for seconds",
        after=f"without a key for the call at most {grown / MIB:.0f} MiB; /healthz at most {waited * 1000:.0f} ms "
        f"({idle * 1000:.0f} ms when idle); with the right key at most {with_key / MIB:.0f} MiB",
    )
    assert survived == len(without), [a for a in without if a.grown > MOST_GROWN or a.waited > MOST_WAITED + idle][:5]


def keep(name: str, found: list[Attempt], idle: float) -> None:
    """The table of all attempts: status, mebibytes, milliseconds."""
    cells = {(a.method, a.path, a.key, a.body): a for a in found}
    lines = [
        f"# Callers of the {name} party",
        "",
        f"Status, MiB of memory, and the slowest `/healthz` in ms meanwhile ({idle * 1000:.0f} ms when idle); "
        f"each {AT_ONCE} times at once. Status 0: closed without an answer.",
        "",
        "| call | key | " + " | ".join(BODIES) + " |",
        "| " + " | ".join(["---"] * (2 + len(BODIES))) + " |",
    ]
    for path, method, key in sorted({(a.path, a.method, a.key) for a in found}):
        shown = [cells.get((method, path, key, body)) for body in BODIES]
        texts = ["" if a is None else f"{a.status} {a.grown / MIB:.0f} {a.waited * 1000:.0f}" for a in shown]
        lines.append(f"| {method} `{path}` | {key} | " + " | ".join(texts) + " |")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"callers-{name}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
