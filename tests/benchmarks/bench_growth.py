"""Each stage on its own at growing sizes, for the plots and for what `tests.benchmarks.capacity` fits.

A stage is a process of its own, start included, or calls to a service; its CPU seconds, peak memory and bytes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from labels_party.mechanisms.bins import solve_bins, warm_up
from tests.benchmarks.bench_intake import ARROW, pieces, serving
from tests.benchmarks.bench_join import PLAIN
from tests.benchmarks.bench_privatize import MEMORY_MB, REWRITE, THREADS, write_labels
from tests.benchmarks.bench_solver import milliseconds, skewed
from tests.benchmarks.children import BIN, Used, measured
from tests.benchmarks.lines import Line

SMALLEST, LARGEST = 100_000, 10_000_000  # rows, where no other largest size is asked for
WARM = 1_000_000  # of a first run, which compiles the kernels
TRAINED = 10  # times fewer rows: more of them take minutes and tell nothing new
FEATURES = 10
DOMAINS = (100, 1_000, 10_000, 100_000, 1_000_000)
BATCH = 1 << 16
OPTIONS = "--id-column click --label-column revenue --domain 0:400 --epsilon 1 --budget 1 --population p"


def _write_features(path: Path, labels: Path) -> None:
    """FEATURES normal numbers for every id of a file of labels, in its order, which is not that of a message. The first
    tells of the label: a training on noise alone ends early in some runs."""
    rng = np.random.default_rng(1)
    schema = pa.schema([("id", pa.string()), *((f"f{i}", pa.float64()) for i in range(FEATURES))])
    with pq.ParquetFile(labels) as source, pq.ParquetWriter(path, schema) as writer:
        for part in source.iter_batches(1 << 20, columns=["click", "revenue"]):
            columns = rng.normal(size=(FEATURES, part.num_rows))
            columns[0] += np.log(part.column("revenue"))
            writer.write_batch(pa.record_batch([part.column(0), *columns], schema=schema))


def _size(path: Path) -> int:
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file()) if path.is_dir() else path.stat().st_size


@dataclass
class _Series:
    """The lines of one size as they are measured."""

    folder: Path
    n: int
    trains: bool
    kernels: dict[str, str]
    found: list[Line] = field(default_factory=list)

    def stage(
        self, name: str, *words: str | Path, beside: str = "", stored: Path | None = None, rounds: int = 1
    ) -> None:
        """A command's CPU, the least of some rounds, its peak memory, and the bytes it left in `stored`; `beside`: an
        earlier stage, of the same."""
        env = self.kernels | {
            "LABELS_PARTY_HOME": str(self.folder / "labels"),
            "FEATURES_PARTY_HOME": str(self.folder / "features"),
            "LABELS_PARTY_MEMORY_LIMIT_MB": str(MEMORY_MB),
        }
        used = Used(*map(min, zip(*(measured(words, env) for _ in range(rounds)), strict=True)))
        for what, value, unit in (("CPU", used.cpu, "s"), ("peak", used.peak, "MiB")):
            other = next((line.figure for line in self.found if line.name == f"{beside}, {what}"), None)
            ratio = None if other is None else value / other
            self.found.append(Line(f"{name}, {what}", value, unit, beside, ratio, size=self.n))
        if stored is not None:
            self.found.append(Line(f"{name}, stored", _size(stored) / self.n, "bytes a row", size=self.n))

    def run(self) -> list[Line]:
        """From a file of labels to a trained model."""
        folder, labels, party = self.folder, self.folder / "labels.parquet", BIN / "features-party"
        message, features, joined = (folder / f"{name}.parquet" for name in ("message", "features", "joined"))
        write_labels(labels, self.n)
        limits = [f"{MEMORY_MB}MiB", str(THREADS), folder / "spill"]
        self.stage("DuckDB sorts", sys.executable, "-c", REWRITE, labels, folder / "sorted.parquet", *limits)
        privatize = [BIN / "labels-party", "privatize", "--labels", labels, *OPTIONS.split(), "--out", message]
        self.stage("privatize", *privatize, beside="DuckDB sorts", stored=message)
        self.found.append(Line("sealed labels, stored", _size(folder / "labels") / self.n, "bytes a row", size=self.n))
        key = folder / "labels" / "keys" / "signing.pub"
        self.stage("verify", party, "verify", message, "--labels-key", key, rounds=9)
        _write_features(features, labels)
        duckdb = PLAIN.replace("f.click_id", "f.id")
        rows = message / "message-*.parquet" if message.is_dir() else message
        self.stage("DuckDB joins", sys.executable, "-c", duckdb, features, rows, folder / "plain.parquet")
        both = ["--message", message, "--labels-key", key, "--features", features, "--id-column", "id"]
        self.stage("join", party, "join", *both, "--out", joined, beside="DuckDB joins", stored=joined)
        if self.trains:
            model = folder / "model"
            self.stage("train", party, "train", *both, "--out", model, beside="join")
        return self.found


def _uploads(sizes: Sequence[int]) -> list[Line]:
    """CPU of the service for an upload of each size."""
    with tempfile.TemporaryDirectory() as name, serving() as server:
        found = []
        for n in (min(WARM, sizes[-1]), *sizes):  # the first loads the kernels: a service that has been up for a while
            write_labels(Path(name) / "labels.parquet", n)
            table = pq.read_table(Path(name) / "labels.parquet").rename_columns(["example_id", "label"])
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table, max_chunksize=BATCH)
            before = server.cpu()
            server.send(server.connect(), "POST", server.open(), pieces(sink.getvalue().to_pybytes()), ARROW)
            found.append(Line("upload, CPU", server.cpu() - before, "s", size=n))
    return found[1:]


def _solver() -> list[Line]:
    warm_up()
    found = []
    for loss in ("squared", "absolute", "poisson"):
        for k in DOMAINS:
            p, y = skewed(k)
            took = milliseconds(lambda p=p, y=y, loss=loss: solve_bins(p, y, 1.0, loss), 3)
            found.append(Line(f"solver, {loss}", took, "ms", size=k))
    return found


def lines(most: int = LARGEST) -> list[Line]:
    """Up to `most` rows, a tenth of them for training. About four minutes; 10⁸ rows take an hour and 25 GB of disk."""
    sizes = sorted({SMALLEST * 10**step for step in range(len(str(most // SMALLEST)))} | {most})
    found = [*_solver(), *_uploads([n for n in sizes if n <= LARGEST])]
    with tempfile.TemporaryDirectory() as name:
        kernels = {"NUMBA_CACHE_DIR": os.environ.get("NUMBA_CACHE_DIR", str(Path(name) / "kernels"))}
        for number, n in enumerate((min(WARM, most), *sizes)):
            folder = Path(name) / str(number)
            folder.mkdir()
            series = _Series(folder, n, n <= max(most // TRAINED, SMALLEST), kernels).run()
            found += series if number else []
            subprocess.run(["rm", "-rf", folder], check=True)
    return found
