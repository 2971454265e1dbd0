"""DuckDB, Polars, Daft or Ray, of an advertiser: rows of an engine as an Arrow stream, by a pipe and no file.

python arrow_streams.py duckdb sales.parquet | labels-party privatize --labels - --id-column click_id …
"""

from __future__ import annotations

import sys
from itertools import chain
from typing import Any

import pyarrow as pa


def batches(engine: str, sales: str) -> Any:
    """Return the revenue of each click, some rows at a time."""
    if engine == "ray":
        import ray.data

        return iter(ray.data.read_parquet(sales).iter_batches(batch_format="pyarrow"))
    if engine == "daft":
        import daft

        return daft.read_parquet(sales).groupby("click_id").sum("revenue").to_arrow_iter()
    if engine == "polars":
        import polars

        sums = polars.scan_parquet(sales).group_by("click_id").sum()
        return iter(sums.collect(engine="streaming").to_arrow().to_batches())
    import duckdb

    return iter(duckdb.read_parquet(sales).aggregate("click_id, sum(revenue) AS revenue").to_arrow_reader())


rows = batches(*sys.argv[1:])
first = next(rows)
with pa.ipc.new_stream(sys.stdout.buffer, first.schema) as stream:
    for batch in chain([first], rows):
        stream.write(batch)
