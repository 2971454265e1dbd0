"""The largest domains, whole job and plan, in a process of their own whose memory is measured."""

from __future__ import annotations

import multiprocessing
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.soak.conftest import Scale
from tests.soak.report import Report
from tests.support.labels import LabelsParty

MOST_SECONDS = 120.0
MOST_RESIDENT = 3 << 30


def _job(home: Path, top: int, seed: int, told: Any) -> None:
    with LabelsParty(home, worker=False) as party:
        owner = party.client("owner")
        body = {"name": "cents", "label": "cents", "domain": f"0:{top}", "lifetime_epsilon": "2"}
        assert owner.post("/v1/populations", json=body).status_code == 201
        batch = owner.post("/v1/populations/cents/batches", json={"presence": "public"}).json()["id"]
        labels = np.minimum(np.random.default_rng(seed).lognormal(9, 2, 2000), 1e9)
        rows = {"example_id": [f"c{i}" for i in range(2000)], "label": labels.tolist()}
        assert owner.post(f"/v1/batches/{batch}/labels", json=rows).status_code == 200
        assert owner.post(f"/v1/batches/{batch}/seal").status_code == 200
        assert owner.get("/v1/populations/cents/plan?epsilon=1&n=2000").status_code == 200
        release = owner.post(f"/v1/batches/{batch}/releases", json={"epsilon": "1"}).json()["id"]
        assert party.services.worker.drain() == 1
        assert owner.get(f"/v1/releases/{release}").json()["state"] == "published"
    unit = 1 if sys.platform == "darwin" else 1024
    told.put(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


@pytest.mark.parametrize("top", [10_000_000, (1 << 24) - 1])
def test_large_domain(top: int, scale: Scale, report: Report, tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    told, started = spawn.Queue(), time.monotonic()
    child = spawn.Process(target=_job, args=(tmp_path / "home", top, scale.seed, told))
    child.start()
    child.join(MOST_SECONDS)
    took = time.monotonic() - started
    alive = child.is_alive()
    child.kill()
    child.join()
    peak = 0 if alive or child.exitcode else told.get(timeout=5)
    limit = f"{took:.0f} of {MOST_SECONDS:.0f} s, peak {peak >> 20} of {MOST_RESIDENT >> 20} MiB"
    report.row(1, int(bool(peak) and peak < MOST_RESIDENT), limit)
    assert peak, "it did not end in time" if alive else f"it ended with {child.exitcode}"
    assert peak < MOST_RESIDENT
