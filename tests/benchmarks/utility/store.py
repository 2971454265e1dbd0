"""The cells that are computed already: one line each of an append-only NDJSON file, so that a run can be stopped."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.benchmarks.utility.cells import Cell, digest

Result = dict[str, Any]


class Store:
    """Lines {"cell", "digest", "result"}; of several lines of one cell the last one counts."""

    def __init__(self, path: Path, keep: bool = False, earlier: Path | None = None) -> None:
        """`keep`: accept cells that other source files computed. `earlier`: a gzipped file of more lines, older ones,
        such as the one that is committed with the report."""
        self.path, self.keep, self.earlier = path, keep, earlier

    def add(self, cell: Cell, result: Result) -> None:
        """Append whole lines only: one writer at a time, and a torn line of a killed one is ended first."""
        line = json.dumps({"cell": asdict(cell), "digest": digest(cell), "result": result}, ensure_ascii=False)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            end = file.seek(0, os.SEEK_END)
            if end:
                file.seek(end - 1)
                line = line if file.read(1) == b"\n" else "\n" + line
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> dict[Cell, Result]:
        """Every cell that counts. A torn line is passed over; its cell is computed again."""
        return {cell: result for cell, current, result in self._records() if current or self.keep}

    def ages(self) -> dict[Cell, bool]:
        """Of every stored cell, whether the source files that computed it are those of today."""
        ages: dict[Cell, bool] = {}
        for cell, current, _ in self._records():
            ages[cell] = current or ages.get(cell, False)
        return ages

    def _records(self) -> Iterator[tuple[Cell, bool, Result]]:
        for line in self._lines():
            try:
                record = json.loads(line)
                cell = Cell(**record["cell"])
                yield cell, record["digest"] == digest(cell), dict(record["result"])
            except (ValueError, TypeError, KeyError):
                continue

    def _lines(self) -> Iterator[bytes]:
        if self.earlier is not None and self.earlier.exists():
            with gzip.open(self.earlier, "rb") as packed:
                yield from packed
        if self.path.exists():
            with self.path.open("rb") as file:
                yield from file
