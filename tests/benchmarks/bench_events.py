"""Conversion events: intake through `labels-party serve`, and the fold to labels at a seal, in a process of its own."""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from label_dp.domain import Domain
from label_dp.schemas.events import EventRule
from labels_party.labels.digests import EventKeys, siphash128
from labels_party.labels.events.bodies import EVENT, HAS_EXAMPLE, HAS_VALUE, currency_number
from labels_party.labels.events.fold import EventFold
from tests.benchmarks.bench_intake import SINGLES, SMALL, Server, at_once, one_by_one, serving, timed
from tests.benchmarks.lines import Line

UPLOADS = 300
CLICKS_OF = 10  # events of a click
RULE = EventRule(data_set_id="shop", types={"purchase": "+", "refund": "-"}, take="sum", currency="EUR")
BLOCK = 1 << 17
KEYS = EventKeys(bytes(16), bytes(range(16)), bytes(range(16, 32)))


def event(number: int) -> dict[str, object]:
    """An event as a shop's backend sends it, with members that nothing reads."""
    return {
        "data_set_id": "shop",
        "id": f"order-{number:09d}",
        "timestamp": 1_746_558_464 + number,
        "event_type": "purchase" if number % 10 else "refund",
        "value": number % 40_000 / 100,
        "currency_code": "EUR",
        "source": "website",
        "user_data": {"click_id": f"click-{number // CLICKS_OF:08d}", "event_ip_address": "203.0.113.7"},
        "properties": {"transaction_id": f"T{number}", "items": [{"id": "sku-1", "price": 12.5, "quantity": 1}]},
    }


def opened(server: Server) -> None:
    """A batch that takes the events."""
    rule = RULE.model_dump(mode="json")
    population = {"name": "e", "label": "e", "domain": "0:400", "lifetime_epsilon": "1", "missing_label": 0}
    shop = server.call("POST", "/v1/populations", population | {"events": rule})["id"]
    server.call("POST", f"/v1/populations/{shop}/batches", {})


def intake() -> list[Line]:
    bodies = [json.dumps([event(u * SMALL + i) for i in range(SMALL)]).encode() for u in range(UPLOADS)]
    parse = timed(lambda: deque((len(orjson.loads(body)) for body in bodies), 0))
    events = UPLOADS * SMALL
    beside = f"orjson reading the same bodies alone ({events / parse:,.0f}/s)"
    with serving() as server:
        opened(server)
        at_once(server, "/v1/events", bodies[:20])
        before, start = server.cpu(), time.perf_counter()
        at_once(server, "/v1/events", bodies)
        wall, cpu = time.perf_counter() - start, server.cpu() - before
        labels = median(asyncio.run(one_by_one(server, server.open(), keyed=False)))
        single = median(
            asyncio.run(one_by_one(server, "/v1/events", keyed=False, body_of=lambda n: orjson.dumps(event(n))))
        )
    note = f"uploads of {SMALL:,}, {len(bodies[0]) / SMALL:.0f} bytes an event"
    return [
        Line("events", events / wall, "events/s", beside, parse / wall, more=True, note=note),
        Line("events, by the CPU", events / cpu, "events/s", beside, parse / cpu, 100_000.0, more=True, note=note),
        Line("single events, median", 1e3 * single, "ms", f"single labels ({1e3 * labels:.0f} ms)", single / labels,
             wanted_ratio=1.15),
    ]  # fmt: skip


def median(took: list[float]) -> float:
    return took[SINGLES // 2]


def ids(first: int, last: int) -> pa.Array:
    numbers = pc.utf8_lpad(pa.array(range(first, last)).cast(pa.string()), 8, "0")
    return pc.binary_join_element_wise("click", numbers, "-")


def fold(rows: int) -> tuple[float, float]:
    """Seconds of CPU of the fold of `rows` events of a tenth as many clicks, and the most MiB of this process."""
    import labels_party.labels.kernels  # noqa: F401 - compiled or loaded once a process, before it is measured

    rng, clicks, spent = np.random.default_rng(1), rows // CLICKS_OF, 0.0
    purchase = siphash128(pa.array(["purchase"]), KEYS.type)[0][0]

    def examples() -> Iterator[tuple[pa.Array, None]]:
        nonlocal spent
        for at in range(0, clicks, BLOCK):
            start = time.process_time()
            part = ids(at, min(at + BLOCK, clicks))
            spent -= time.process_time() - start
            yield part, None

    with tempfile.TemporaryDirectory() as folder, closing(EventFold(RULE, KEYS, rows, Path(folder))) as of_rule:
        for at in range(0, rows, BLOCK):
            n = min(BLOCK, rows - at)
            low, high = siphash128(ids(at // CLICKS_OF, (at + n) // CLICKS_OF), KEYS.example)
            events, click = np.zeros(n, EVENT), rng.integers(0, len(low), n)
            for half in ("event_low", "event_high"):
                events[half] = rng.integers(0, 1 << 64, n, np.uint64)
            events["example_low"], events["example_high"] = low[click], high[click]
            events["type"], events["amount"] = purchase, rng.integers(1, 1 << 24, n)
            events["currency"], events["flags"] = currency_number("EUR"), HAS_EXAMPLE | HAS_VALUE
            start = time.process_time()
            of_rule.add(events)
            spent += time.process_time() - start
        start = time.process_time()
        of_rule.positions(examples(), clicks, Domain.from_json("0:400"))
        spent += time.process_time() - start
        assert of_rule.counts.counted == rows
    return spent, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def folds(rows: int) -> list[Line]:
    lines = []
    for size in [10**6, 10**7, 10**8]:
        if size <= max(rows, 10**7):
            words = [sys.executable, "-m", "tests.benchmarks.bench_events", str(size)]
            cpu, peak = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
            lines.append(Line("fold, CPU an event", 1e6 * cpu / size, "µs", wanted=1.5, size=size))
            lines.append(
                Line("fold, peak", peak, "MiB", wanted=1024.0, size=size, note=f"{size // CLICKS_OF:,} clicks")
            )
    return lines


def lines(rows: int = 10**7) -> list[Line]:
    """Events per second that are accepted, durable and answered; CPU and memory of the fold by size."""
    return intake() + folds(rows)


if __name__ == "__main__":
    print(json.dumps(fold(int(sys.argv[1]))))
