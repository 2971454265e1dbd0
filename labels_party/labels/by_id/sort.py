"""Sort by id of any number of rows: in memory while they fit, else by runs on disk."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from label_dp.errors import Unavailable
from labels_party.labels.by_id.blocks import Block
from labels_party.labels.by_id.in_memory import in_order
from labels_party.labels.spool import Spool

if TYPE_CHECKING:
    import pyarrow as pa


BLOCK_ROWS, BLOCK_BYTES = 1 << 18, 1 << 24


class IdSort:
    """Context manager that yields added rows once, sorted bytewise by id; rows of one id keep their order. Holds about
    `memory` bytes at most; more lies encrypted below `spill`. `rows`: count of added rows."""

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
        """Add rows: Arrow strings without nulls, uint32[n]. Raises Unavailable if the disk fails."""
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
        """End the input; if all is in memory, a thread sorts until the first block."""
        self._close_block()
        if self._blocks and not self._runs:
            sorted_, pool = in_order(self._blocks), ThreadPoolExecutor(1, "first block")
            self._begun = sorted_, pool.submit(next, sorted_, None)
            pool.shutdown(wait=False)

    def blocks(self) -> Iterator[Block]:
        """Yield all rows in consecutive sorted blocks, no id in two of them. Raises Unavailable."""
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


class DiskRun:
    """Sorted run, written once and read once."""

    def __init__(self, blocks: Iterable[Block], folder: Path) -> None:
        """Write the blocks. Raises OSError."""
        self._spool = Spool(folder)
        try:
            for block in blocks:
                first, end = int(block.offsets[0]), int(block.offsets[-1])
                head = np.array([len(block), end - first], np.int64)
                for part in (head, block.offsets - np.int32(first), block.labels, block.data[first:end]):
                    self._spool.add(np.ascontiguousarray(part).view(np.uint8).data)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._spool.close()

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks, once."""
        while head := self._spool.read(16):
            rows, size = np.frombuffer(head, np.int64).tolist()
            whole = self._spool.read(8 * rows + 4 + size)
            numbers = np.frombuffer(whole, np.int32, 2 * rows + 1)
            yield Block(
                numbers[: rows + 1],
                np.frombuffer(whole, np.uint8, offset=8 * rows + 4),
                numbers[rows + 1 :].view(np.uint32),
            )


class _Head:
    """Blocks read from a run and not passed on yet."""

    def __init__(self, run: DiskRun, memory: int) -> None:
        self._blocks, self.memory = run.blocks(), memory
        self.held: list[Block] = []
        self.ended = False

    def fill(self) -> None:
        """Read at least one more block."""
        size = 0
        while not self.ended:
            block = next(self._blocks, None)
            if block is None:
                self.ended = True
                return
            self.held.append(block)
            size += block.size
            if size >= self.memory:
                return

    @property
    def last(self) -> bytes:
        return self.held[-1].id(len(self.held[-1]) - 1)

    def taken(self, bound: bytes | None) -> list[Block]:
        """Remove and return the rows before `bound`, all if it is None."""
        blocks: list[Block] = []
        while self.held:
            rows = len(self.held[0]) if bound is None else self.held[0].before(bound)
            if rows:
                blocks.append(self.held[0].part(0, rows))
            if rows < len(self.held[0]):
                self.held[0] = self.held[0].part(rows, len(self.held[0]))
                break
            self.held.pop(0)
        return blocks


def merged(runs: list[DiskRun], memory: int) -> Iterator[Block]:
    """Merge runs by id; equal ids in the order of runs; no id in two blocks."""
    heads = [_Head(run, memory // (4 * len(runs))) for run in runs]  # taken, sorted and passed on: each once more
    for head in heads:
        head.fill()
    while any(head.held for head in heads):
        # an id that is the last one held may go on in what is not read yet
        bound = min((head.last for head in heads if not head.ended), default=None)
        blocks = [block for head in heads for block in head.taken(bound)]
        if blocks:
            yield from in_order(blocks, sorted_blocks=True)
        for head in heads:
            if not head.ended and (not head.held or head.last == bound):
                head.fill()
