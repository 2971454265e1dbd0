"""The command line in fresh processes: help, and 100,000 labels from file to signed message."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.benchmarks.lines import Line

BIN = Path(sys.executable).parent
ROUNDS = 5


def wall(*command: str | Path, env: dict[str, str] | None = None) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=dict(os.environ) | (env or {}))
    return time.perf_counter() - start


def lines() -> list[Line]:
    """Medians over fresh processes, beside the start of a bare interpreter that imports numpy."""
    bare = statistics.median(wall(sys.executable, "-c", "import numpy") for _ in range(ROUNDS))
    floor = f"python -c 'import numpy' ({bare:.2f} s)"
    found = []
    for name in ("labels-party", "features-party"):
        took = statistics.median(wall(BIN / name, "--help") for _ in range(ROUNDS))
        found.append(Line(f"{name} --help", took, "s", floor, took / bare, wanted=0.5))
    with tempfile.TemporaryDirectory() as folder:
        labels = Path(folder) / "labels.parquet"
        revenue = np.minimum(np.random.default_rng(0).lognormal(3, 1.2, 100_000), 400)
        pq.write_table(pa.table({"click": [f"c{i:07d}" for i in range(100_000)], "revenue": revenue}), labels)
        for mechanism in ("rr-on-bins", "one-bit"):
            times = []
            for i in range(3):
                home = {"LABELS_PARTY_HOME": str(Path(folder) / f"{mechanism}-{i}")}
                options = (
                    "--id-column click --label-column revenue --domain 0:400 --epsilon 1 --budget 1 --population p"
                )
                out = Path(folder) / f"{mechanism}-{i}.parquet"
                run = [
                    BIN / "labels-party",
                    "privatize",
                    "--labels",
                    labels,
                    *options.split(),
                    "--mechanism",
                    mechanism,
                ]
                times.append(wall(*run, "--out", out, env=home))
            took = statistics.median(times)
            found.append(Line(f"privatize, 100,000 labels, {mechanism}", took, "s", floor, took / bare, wanted=3.0))
    return found
