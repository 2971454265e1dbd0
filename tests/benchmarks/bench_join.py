"""`features-party join --out` of 10 million rows with 20 feature columns, in a fresh process, beside plain DuckDB."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.benchmarks.children import BIN, measured
from tests.benchmarks.lines import Line
from tests.support.messages import Sender, one_bit

ROWS = 10_000_000
PIECE = 1 << 20
LIMIT_MIB = 1536

PLAIN = """
import duckdb, sys
features, message, out = sys.argv[1:]
with duckdb.connect(config={"memory_limit": "1024MB", "temp_directory": out + ".spill"}) as db:
    joined = f"SELECT f.*, m.label FROM '{features}' f JOIN '{message}' m ON f.click_id = m.example_id"
    db.execute(f"COPY ({joined}) TO '{out}' (FORMAT parquet, COMPRESSION zstd)")
"""


def write_files(folder: Path, rows: int) -> None:
    """A message and, shuffled, its features: 14 float, 3 integer and 3 text columns; and the public key."""
    rng = np.random.default_rng(0)
    ids, sender = [f"click-{i:08d}" for i in range(rows)], Sender()
    sender.write(folder / "message.parquet", ids, rng.integers(0, 11, rows).astype(np.float64), one_bit())
    order, words = rng.permutation(rows), pa.array([f"value {i}" for i in range(50)])

    def piece(start: int) -> pa.Table:
        n = min(PIECE, rows - start)
        columns = {"click_id": pa.array([ids[i] for i in order[start : start + n]])}
        columns |= {f"f{j}": pa.array(rng.normal(size=n)) for j in range(14)}
        columns |= {f"f{j}": pa.array(rng.integers(0, 1000, n)) for j in range(14, 17)}
        return pa.table(columns | {f"f{j}": words.take(pa.array(rng.integers(0, 50, n))) for j in range(17, 20)})

    with pq.ParquetWriter(folder / "features.parquet", piece(0).schema, compression="zstd") as writer:
        for start in range(0, rows, PIECE):
            writer.write_table(piece(start))
    sender.public_key(folder)


def lines(count: int = ROWS) -> list[Line]:
    with tempfile.TemporaryDirectory() as name:
        folder, key = Path(name), Path(name) / "labels-signing.pub"
        write_files(folder, count)
        features, message = folder / "features.parquet", folder / "message.parquet"
        plain = measured([sys.executable, "-c", PLAIN, features, message, folder / "plain.parquet"])
        (folder / "plain.parquet").unlink()
        command = [BIN / "features-party", "join", "--message", message, "--labels-key", key, "--features", features]
        command += ["--id-column", "click_id", "--out", folder / "joined.parquet"]
        ours = measured(command, {"FEATURES_PARTY_HOME": str(folder / "home")})
    shown = f"{count / 1e6:g} million rows × 20 features"
    beside = f"plain DuckDB joining the same files ({plain.wall:.1f} s, {plain.peak:.0f} MiB)"
    return [
        Line("join --out, wall", ours.wall, "s", beside, ours.wall / plain.wall, note=shown),
        Line("join --out, peak", ours.peak, "MiB", beside, ours.peak / plain.peak, wanted=LIMIT_MIB, note=shown),
    ]
