"""`privatize` of ten million labels, file to signed message, against DuckDB sorting and rewriting the same file.

Each measurement is a child process, its start included. Both have the same file, threads and memory; otherwise DuckDB
has its defaults. Rounds alternate, and the least time of each side counts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.benchmarks.children import BIN, Used, measured
from tests.benchmarks.lines import Line

ROWS = 10_000_000
MEMORY_MB = 1024
THREADS = os.cpu_count() or 1
LIMITS = f"{MEMORY_MB} MiB, {THREADS} threads"
ROUNDS = 4
AT_ONCE = 1 << 20

REWRITE = """
import sys, duckdb
source, out, limit, threads, spill = sys.argv[1:]
with duckdb.connect(config={"memory_limit": limit, "threads": int(threads), "temp_directory": spill}) as db:
    db.sql(f"COPY (SELECT * FROM '{source}' ORDER BY click) TO '{out}' (FORMAT parquet)")
"""


def write_labels(path: Path, rows: int) -> None:
    """Random ids of 16 hexadecimal digits with skewed amounts, in no order."""
    rng = np.random.default_rng(0)
    with pq.ParquetWriter(path, pa.schema([("click", pa.string()), ("revenue", pa.float64())])) as writer:
        for start in range(0, rows, AT_ONCE):
            n = min(AT_ONCE, rows - start)
            offsets, text = np.arange(n + 1, dtype=np.int32) * 16, rng.bytes(8 * n).hex().encode()
            ids = pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(text))
            amounts = pa.array(np.minimum(rng.lognormal(3, 1.2, n), 400))
            writer.write_batch(pa.record_batch([ids, amounts], names=["click", "revenue"]))


def lines(n: int = ROWS, rounds: int = ROUNDS) -> list[Line]:
    """The least of alternating rounds, of many rows of one; the kernels are compiled beforehand, as in the image."""
    large = n > ROWS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        labels = folder / "labels.parquet"
        write_labels(labels, n)
        small = folder / "small.parquet"
        write_labels(small, 2 * AT_ONCE)
        kernels = {"NUMBA_CACHE_DIR": os.environ.get("NUMBA_CACHE_DIR", str(folder / "kernels"))}

        def privatize(source: Path, run: str) -> Used:
            options = "--id-column click --label-column revenue --domain 0:400 --epsilon 1 --budget 1 --population p"
            command = [BIN / "labels-party", "privatize", "--labels", source, *options.split(), "--json"]
            env = kernels | {"LABELS_PARTY_HOME": str(folder / run), "LABELS_PARTY_MEMORY_LIMIT_MB": str(MEMORY_MB)}
            found = measured([*command, "--out", folder / f"{run}.parquet"], env)
            subprocess.run(["rm", "-rf", folder / run, folder / f"{run}.parquet"], check=True)
            return found

        def rewrite() -> Used:
            command = [sys.executable, "-c", REWRITE, labels, folder / "sorted.parquet", f"{MEMORY_MB}MiB"]
            return measured([*command, str(THREADS), folder / "spill"])

        privatize(small, "warm")
        os.sync()  # or the first side would wait for a disk that still writes what both read
        found = [(privatize(labels, f"run-{i}"), rewrite()) for i in range(1 if large else rounds)]
    # what else the machine does only ever adds to a time, so the least is the nearest to the truth
    ours, theirs = (Used(*map(min, zip(*side, strict=True))) for side in zip(*found, strict=True))
    beside = f"DuckDB sorting and rewriting them ({theirs.wall:.2f} s wall, {theirs.cpu:.2f} s of CPU)"
    wall, cpu = ours.wall / theirs.wall, ours.cpu / theirs.cpu
    # of many rows what is mapped from files is as much as the system has memory for
    peak, what = (
        max((run.anonymous if large else run.peak) for run, _ in found),
        "anonymous memory" if large else "peak",
    )
    limit, most = f"the limit ({MEMORY_MB} MiB)", peak / MEMORY_MB
    return [
        Line(f"{n:,} labels, wall", ours.wall, "s", beside, wall, wanted_ratio=1.4 if large else 1.5, note=LIMITS),
        Line(f"{n:,} labels, CPU", ours.cpu, "s", beside, cpu, wanted_ratio=1.7, note=LIMITS),
        Line(f"{n:,} labels, {what}", peak, "MiB", limit, most, wanted_ratio=1.0),
    ]
