"""`privatize` of a folder, a Delta and an Iceberg table, beside one Parquet file of the same rows.

Each measurement is a child process, its start included; rounds alternate, and the least time of each input counts.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
from deltalake import write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from tests.benchmarks.bench_privatize import write_labels
from tests.benchmarks.children import BIN, Used, measured
from tests.benchmarks.lines import Line

ROWS = 4_000_000
PARTS = 8
ROUNDS = 3
MEMORY_MB = 512
OPTIONS = "--id-column click --label-column revenue --domain 0:400 --epsilon 1 --budget 1 --population p --json"


def inputs(folder: Path, rows: int) -> dict[str, str]:
    """The same rows four times; their addresses by name."""
    file, warehouse = folder / "labels.parquet", folder / "warehouse"
    write_labels(file, rows)
    (folder / "folder").mkdir()
    warehouse.mkdir()
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=warehouse.as_uri())
    catalog.create_namespace("shop")
    whole = pq.read_table(file)
    table = catalog.create_table("shop.sales", schema=whole.schema)
    for at in range(PARTS):
        part = whole.slice(at * rows // PARTS, (at + 1) * rows // PARTS - at * rows // PARTS)
        pq.write_table(part, folder / "folder" / f"{at}.parquet")
        write_deltalake(folder / "delta", part, mode="append")
        table.append(part)
    names = {"a folder": str(folder / "folder"), "a Delta table": f"delta:{folder / 'delta'}"}
    return {"file": str(file), **names, "an Iceberg table": "iceberg:lake/shop.sales"}


def lines(rows: int = ROWS, rounds: int = ROUNDS) -> list[Line]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        places = inputs(folder, rows)
        env = {
            "NUMBA_CACHE_DIR": os.environ.get("NUMBA_CACHE_DIR", str(folder / "kernels")),
            "LABELS_PARTY_HOME": str(folder / "home"),
            "LABELS_PARTY_MEMORY_LIMIT_MB": str(MEMORY_MB),
            "PYICEBERG_CATALOG__LAKE__TYPE": "sql",
            "PYICEBERG_CATALOG__LAKE__URI": f"sqlite:///{folder}/catalog.db",
        }

        def privatize(place: str) -> Used:
            out = folder / "out" / "message.parquet"
            out.parent.mkdir()
            command = [BIN / "labels-party", "privatize", "--labels", place, *OPTIONS.split(), "--out", out]
            used = measured(command, env)
            for made in (out.parent, folder / "home"):
                shutil.rmtree(made)
            return used

        privatize(places["file"])  # compiles the kernels
        runs = [{kind: privatize(place) for kind, place in places.items()} for _ in range(rounds)]
    least = {kind: Used(*map(min, zip(*(run[kind] for run in runs), strict=True))) for kind in places}
    file, shown = least.pop("file"), f"{rows / 1e6:g} million labels in {PARTS} parts"
    beside = f"one Parquet file ({file.wall:.2f} s wall, {file.cpu:.2f} s of CPU, {file.peak:.0f} MiB)"
    return [
        Line(f"{kind}, {what}", value, unit, beside, value / of, note=shown)
        for kind, used in least.items()
        for what, unit, value, of in (
            ("wall", "s", used.wall, file.wall),
            ("CPU", "s", used.cpu, file.cpu),
            ("peak", "MiB", used.peak, file.peak),
        )
    ]
