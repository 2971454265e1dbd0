"""Measures of services: time to start, memory at rest and under load. Each step returns a few words, or raises
Failed."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections.abc import Iterator

from deploy.images.engine import Failed
from tests.images.rig import PARTIES, READY_SECONDS, Rig, answers

DATABASES = ("labels-db", "features-db")
UNITS = {"B": 1, "kB": 1000, "KiB": 1 << 10, "MB": 1000**2, "MiB": 1 << 20, "GB": 1000**3, "GiB": 1 << 30}
AMOUNT = re.compile(r"([\d.]+)([A-Za-z]+)")


def mebibytes(written: str) -> float:
    """An amount of memory as the engine writes it. Raises Failed."""
    found = AMOUNT.match(written.strip())
    if found is None or found[2] not in UNITS:
        raise Failed(f"the engine tells of a memory of {written!r}")
    return float(found[1]) * UNITS[found[2]] / (1 << 20)


def memory(rig: Rig) -> dict[str, float]:
    """MiB that each service uses now."""
    of = {rig.engine.compose("ps", "--quiet", name).strip(): name for name in (*PARTIES, *DATABASES)}
    told = rig.engine.docker("stats", "--no-stream", "--no-trunc", "--format", "{{json .}}", *of).splitlines()
    return {of[row["ID"]]: mebibytes(row["MemUsage"].split("/")[0]) for row in map(json.loads, told)}


@contextlib.contextmanager
def watched(rig: Rig) -> Iterator[dict[str, float]]:
    """The most MiB that each service was seen to use while the block ran."""
    most: dict[str, float] = {}
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            with contextlib.suppress(Failed):  # a look that fails is one look fewer
                for name, used in memory(rig).items():
                    most[name] = max(used, most.get(name, 0.0))
            over.wait(0.5)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield most
    finally:
        over.set()
        watcher.join()


def told(amounts: dict[str, float], unit: str, places: int) -> str:
    """Format the amounts of every service."""
    return ", ".join(f"{name} {amounts[name]:.{places}f} {unit}" for name in (*PARTIES, *DATABASES))


def started(rig: Rig) -> str:
    """a start of each service, until it is ready."""
    took = {}
    for name in (*DATABASES, *PARTIES):
        rig.engine.compose("stop", name)
        start = time.monotonic()
        rig.engine.compose("start", name)
        while not _ready(rig, name):
            if time.monotonic() > start + READY_SECONDS:
                raise Failed(f"{name} is not ready after {READY_SECONDS:g} s")
            time.sleep(0.1)
        took[name] = time.monotonic() - start
    return told(took, "s", 1)


def at_rest(rig: Rig) -> str:
    """memory at rest."""
    return told(memory(rig), "MiB", 0)


def under_load(rig: Rig) -> str:
    """memory under load: the most seen while a larger demo is played."""
    with watched(rig) as most:
        rig.engine.demo(*rig.demo_words(rig.load))
    return f"{rig.load:,} clicks: {told(most, 'MiB', 0)}"


def _ready(rig: Rig, name: str) -> bool:
    if name in PARTIES:
        return answers(PARTIES[name])
    words = ("exec", "-T", name, "sh", "-c", 'pg_isready -q -h 127.0.0.1 -U "$PARTY_ROLE" -d "$PARTY_ROLE"')
    try:
        rig.engine.compose(*words)
    except Failed:
        return False
    return True
