"""Sorted runs that did not fit in memory, in spools that only this process can read, and their merge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from labels_party.labels.by_id.blocks import Block
from labels_party.labels.by_id.in_memory import in_order
from labels_party.labels.spool import Spool


class DiskRun:
    """One sorted run, written once and read once."""

    def __init__(self, blocks: Iterable[Block], folder: Path) -> None:
        """Raises OSError."""
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
        """The blocks, once."""
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
    """What was read of a run and is not passed on yet."""

    def __init__(self, run: DiskRun, memory: int) -> None:
        self._blocks, self.memory = run.blocks(), memory
        self.held: list[Block] = []
        self.ended = False

    def fill(self) -> None:
        """Read on, by at least one block."""
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
        """The rows before `bound`, all where it is None; they are no longer held."""
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
    """The rows of all runs sorted by id, those of equal ids in the order of runs; no id in two blocks."""
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
