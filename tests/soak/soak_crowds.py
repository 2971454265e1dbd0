"""Ten thousand uploads into one batch, and 64 clients that send labels while a release is drawn."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import httpx
import numpy as np
import pytest

from deploy.demo.services import Service
from tests.soak.report import Report
from tests.soak.soak_mixed_load import Load, resident, service  # noqa: F401 - a fixture

UPLOADS, ROWS = 10_000, 10
CLIENTS, LARGE, SLOWEST = 64, 1_000_000, 10.0  # seconds, of the 99th percentile


def opened(http: httpx.Client, population: str) -> str:
    body = {"name": population, "label": "sales", "domain": "0:100", "lifetime_epsilon": "10"}
    http.post("/v1/populations", json=body)
    return str(http.post(f"/v1/populations/{population}/batches", json={"presence": "public"}).json()["id"])


def sent(http: httpx.Client, batch: str, prefix: str, rows: int) -> float:
    """Seconds that an upload took, which must be taken in."""
    body = {"example_id": [f"{prefix}-{i}" for i in range(rows)], "label": [i % 101 for i in range(rows)]}
    began = time.monotonic()
    answer = http.post(f"/v1/batches/{batch}/labels", json=body)
    assert answer.status_code == 200, answer.text
    return time.monotonic() - began


def test_many_uploads_into_one_batch(service: tuple[Service, dict[str, str]], report: Report) -> None:  # noqa: F811 - it
    """Not bounded by the seconds of a part: the count is the point. The last thousand must not be slower than ever."""
    party, keys = service
    load = Load(party, keys, 0, 0.0)
    with load.client("owner") as http:
        batch = opened(http, "shop")
        took = [sent(http, batch, f"u{number}", ROWS) for number in range(UPLOADS)]
        began = time.monotonic()
        sealed = http.post(f"/v1/batches/{batch}/seal")
        seal = time.monotonic() - began
    first, last = np.median(took[:1000]), np.median(took[-1000:])
    told = f"median upload {1000 * first:.1f} ms of the first 1,000, {1000 * last:.1f} ms of the last"
    told = f"{told}; sealed in {seal:.1f} s"
    report.row(UPLOADS, UPLOADS if sealed.json().get("examples") == UPLOADS * ROWS else 0, told)
    assert sealed.json()["examples"] == UPLOADS * ROWS
    assert last < 3 * first


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="resident memory is read from /proc")
def test_a_crowd_during_a_release(service: tuple[Service, dict[str, str]], report: Report) -> None:  # noqa: F811 - it
    party, keys = service
    load = Load(party, keys, 0, 600.0)
    slow: list[float] = []
    wrong: list[str] = []
    with load.client("owner") as http:
        large, small = opened(http, "large"), opened(http, "small")
        for part in range(4):
            sent(http, large, f"l{part}", LARGE // 4)
        assert http.post(f"/v1/batches/{large}/seal").status_code == 200
        released = http.post(f"/v1/batches/{large}/releases", json={"epsilon": "1"}).json()["id"]
        over = threading.Event()

        def caller(number: int) -> None:
            with load.client("owner") as mine:
                part = 0
                while not over.is_set():
                    try:
                        slow.append(sent(mine, small, f"c{number}-{part}", ROWS))
                    except (AssertionError, httpx.HTTPError) as error:
                        wrong.append(str(error))
                    part += 1

        threads = [threading.Thread(target=caller, args=(number,)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        process = party._process
        assert process is not None
        peak, began = 0, time.monotonic()
        while http.get(f"/v1/releases/{released}").json()["state"] not in ("published", "failed"):
            peak = max(peak, resident(process.pid))
            assert time.monotonic() - began < 300
        took = time.monotonic() - began
        over.set()
        for thread in threads:
            thread.join()
        state = http.get(f"/v1/releases/{released}").json()["state"]
    p50, p99 = np.quantile(slow, [0.5, 0.99])
    told = f"p50 {1000 * p50:.0f} ms, p99 {1000 * p99:.0f} ms; release of {LARGE:,} {state} in {took:.0f} s"
    report.row(len(slow) + len(wrong), len(slow), f"{told}; peak {peak >> 20} MiB")
    assert not wrong, wrong[:3]
    assert state == "published"
    assert p99 < SLOWEST
