"""The sort by id, whatever the number of rows: in memory as long as they fit, else by runs on disk."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from label_dp.errors import Unavailable
from labels_party.labels.by_id.blocks import Block
from labels_party.labels.by_id.in_memory import in_order
from labels_party.labels.by_id.on_disk import DiskRun, merged

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK_ROWS, BLOCK_BYTES = 1 << 18, 1 << 24


class IdSort:
    """Rows go in; they come out once, sorted bytewise by id, rows of one id in the order in which they went in.

    At most about `memory` bytes are held; what is more lies encrypted below `spill`. A context manager.
    `rows`: how many went in.
    """

    def __init__(self, spill: Path, memory: int) -> None:
        self.spill, self.memory = spill, memory
        self._ids: list[pa.Array] = []
        self._labels: list[npt.NDArray[np.uint32]] = []
        self._blocks: list[Block] = []
        self._runs: list[DiskRun] = []
        self._begun: tuple[Generator[Block], Future[Block | None]] | None = None
        self.rows = self._waiting = self._bytes = self._held = 0

    def __enter__(self) -> IdSort:
        return self

    def __exit__(self, *_: object) -> None:
        if self._begun is not None:
            wait([self._begun[1]])
            self._begun[0].close()
        self._blocks.clear()
        for run in self._runs:
            run.close()

    def add(self, ids: pa.Array, labels: npt.NDArray[np.uint32]) -> None:
        """Some rows: Arrow strings without nulls, uint32[n]. Raises Unavailable where the disk fails."""
        if not len(ids):
            return
        self._ids.append(ids)
        self._labels.append(labels)
        self.rows += len(ids)
        self._waiting += len(ids)
        self._bytes += ids.nbytes
        if self._waiting >= BLOCK_ROWS or self._bytes >= BLOCK_BYTES:
            self._close_block()
            if self._held > self.memory:
                self._spill()

    def start(self) -> None:
        """No more rows come: where they are in memory, a thread sorts until it has the first block."""
        self._close_block()
        if self._blocks and not self._runs:
            sorted_, pool = in_order(self._blocks), ThreadPoolExecutor(1, "first block")
            self._begun = sorted_, pool.submit(next, sorted_, None)
            pool.shutdown(wait=False)

    def blocks(self) -> Iterator[Block]:
        """All rows in consecutive sorted blocks, no id in two of them. Raises Unavailable."""
        if self._begun is not None:
            sorted_, first = self._begun
            if (block := first.result()) is not None:
                yield block
            yield from sorted_
            return
        self._close_block()
        if self._runs and self._blocks:
            self._spill()
        with _disk():
            yield from merged(self._runs, self.memory) if self._runs else in_order(self._blocks)

    def _close_block(self) -> None:
        if self._waiting:
            self._blocks.append(Block.of(self._ids, self._labels))
            self._held += self._blocks[-1].size
            self._ids, self._labels, self._waiting, self._bytes = [], [], 0, 0

    def _spill(self) -> None:
        with _disk():
            self.spill.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._runs.append(DiskRun(in_order(self._blocks), self.spill))
        self._held = 0


@contextlib.contextmanager
def _disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable(
            f"The examples cannot be sorted ({error.strerror}); check the disk and the memory limit."
        ) from None
