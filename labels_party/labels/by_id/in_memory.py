"""Sort of blocks in memory: partitioned by a sample until a part fits the cache, then sorted by 64-bit codes.

A code holds the distinguishing bytes of a part's ids and, in its low bits, the row: sorting numbers gives the order,
and equal ids keep their order (Frazer & McKellar 1970, samplesort).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from label_dp.ahead import in_turn
from label_dp.quota import processors
from labels_party.labels.by_id.blocks import Block, total
from labels_party.labels.digests import kernels

THREADS = min(8, processors())
PART = 1 << 16  # mean rows per part
MOST = 1 << 17  # rows of a part that is not divided further
MOST_BUCKETS = 1 << 9
SAMPLED = 32  # sampled keys per bucket
KEY = 8  # bytes


def in_order(blocks: list[Block], *, sorted_blocks: bool = False) -> Generator[Block]:
    """Yield all rows sorted bytewise by id in consecutive blocks, no id in two of them; empties the list.
    `sorted_blocks`: each block is sorted already, so it is cut instead of divided."""
    inputs = blocks.copy()
    blocks.clear()
    if not inputs:
        return
    if not kernels.worth(total(inputs)):
        yield _compared(Block.joined(inputs))
        return
    with ThreadPoolExecutor(THREADS, "sort") as pool:
        yield from in_turn(pool, _sorted, _parts(inputs, 0, pool, sorted_blocks), THREADS)


def _compared(block: Block) -> Block:
    """Sort a few rows without loading compiled code."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ids = block.ids().cast(pa.binary())
    order = pc.sort_indices(ids)
    return Block.of([ids.take(order)], [block.labels[order.to_numpy()]])


def _parts(blocks: list[Block], depth: int, pool: ThreadPoolExecutor, sorted_blocks: bool) -> Iterator[list[Block]]:
    """Yield rows in parts, every id of a part before every id of the next; empties the list."""
    from labels_party.labels.by_id.kernels import shared_prefix

    rows = total(blocks)
    if rows <= MOST:
        yield blocks
        return
    first = np.frombuffer(blocks[0].id(0), np.uint8)
    # of sorted rows the first and the last tell it
    ends = [end for b in blocks for end in (b.part(0, 1), b.part(len(b) - 1, len(b)))] if sorted_blocks else blocks
    depth = min(shared_prefix(b.offsets, b.data, first, depth, first.size) for b in ends)
    splitters = _splitters(blocks, depth, min(MOST_BUCKETS, rows // PART))
    pieces: list[Block] = []

    def divided(block: Block) -> tuple[Block, npt.NDArray[np.int64]]:
        return (_cut if sorted_blocks else _divided)(block, depth, splitters)

    blocks.reverse()
    each = (blocks.pop() for _ in range(len(blocks)))  # a block is let go once it is worked on
    divided_blocks = list(in_turn(pool, divided, each, THREADS - 1))
    for bucket in range(2 * len(splitters) + 1):
        pieces = [
            b.part(int(at[bucket]), int(at[bucket + 1])) for b, at in divided_blocks if at[bucket + 1] > at[bucket]
        ]
        inside = total(pieces)
        if inside == rows:  # keys do not tell these ids apart
            yield pieces
        elif inside:
            yield from _parts(pieces, depth, pool, sorted_blocks)


def _splitters(blocks: list[Block], depth: int, buckets: int) -> npt.NDArray[np.uint64]:
    """Choose 2^i − 1 sorted keys that divide the rows about evenly; repeats the last one if too few differ."""
    step = max(1, total(blocks) // (SAMPLED * buckets))
    sample = []
    for block in blocks:
        rows = np.arange(0, len(block), step)
        ids = [block.id(row)[depth : depth + KEY].ljust(KEY, b"\0") for row in rows.tolist()]
        sample.append(np.frombuffer(b"".join(ids), ">u8").astype(np.uint64))
    keys = np.sort(np.concatenate(sample))
    distinct = np.unique(keys[np.arange(1, buckets) * len(keys) // buckets])
    return np.pad(distinct, (0, (1 << len(distinct).bit_length()) - 1 - len(distinct)), mode="edge")


def _divided(block: Block, depth: int, splitters: npt.NDArray[np.uint64]) -> tuple[Block, npt.NDArray[np.int64]]:
    """Group rows by bucket; also return int64[2s + 2], the first row of each."""
    from labels_party.labels.by_id.kernels import choose_buckets, fill_keys, scatter

    count = 2 * len(splitters) + 1
    keys, bucket = np.empty(len(block), np.uint64), np.empty(len(block), np.uint16)
    rows, size = np.zeros(count, np.int64), np.zeros(count, np.int64)
    fill_keys(block.offsets, block.data, depth, keys)
    choose_buckets(block.offsets, block.data, keys, splitters, bucket, rows, size)
    starts = np.concatenate([[0], np.cumsum(rows)])
    moved = _empty(len(block), block.id_bytes)
    first, at = starts[:-1].copy(), np.cumsum(size) - size
    scatter(block.offsets, block.data, block.labels, bucket, first, at, moved.offsets, moved.data, moved.labels)
    return moved, starts


def _cut(block: Block, depth: int, splitters: npt.NDArray[np.uint64]) -> tuple[Block, npt.NDArray[np.int64]]:
    """Find the buckets as `_divided` does, in a sorted block, without moving rows."""
    from labels_party.labels.by_id.kernels import fill_keys

    keys = np.empty(len(block), np.uint64)
    fill_keys(block.offsets, block.data, depth, keys)
    edges = np.stack([np.searchsorted(keys, splitters, side) for side in ("left", "right")], axis=1).ravel()
    # a splitter that is repeated has nothing the second time
    return block, np.concatenate([[0], np.maximum.accumulate(edges), [len(block)]])


def _sorted(parts: list[Block]) -> Block:
    """Sort rows that fit the cache into one block."""
    from labels_party.labels.by_id.kernels import gather

    block = Block.joined(parts)
    order = _order(block, 0)
    moved = _empty(len(block), block.id_bytes)
    gather(block.offsets, block.data, block.labels, order, moved.offsets, moved.data, moved.labels)
    return moved


def _order(block: Block, depth: int) -> npt.NDArray[np.int64]:
    """Return int64[n] rows in stable order of ids whose first `depth` bytes are equal."""
    from labels_party.labels.by_id.kernels import fill_keys, gather, settle_ties, shared_prefix

    n = len(block)
    first = np.frombuffer(block.id(0), np.uint8)
    depth = shared_prefix(block.offsets, block.data, first, depth, first.size)
    keys = np.empty(n, np.uint64)
    fill_keys(block.offsets, block.data, depth, keys)
    low = keys.min()
    width, bits = int(keys.max() - low).bit_length(), max(1, (n - 1).bit_length())
    if width == 0:
        return _ended(block, depth)
    keys -= low
    coded = ((keys >> np.uint64(max(0, width + bits - 64))) << np.uint64(bits)) | np.arange(n, dtype=np.uint64)
    coded.sort()
    order, ties = np.empty(n, np.int64), np.empty(n // 8 + 2, np.int64)
    count = settle_ties(block.offsets, block.data, depth, coded, bits, order, ties)
    for start, end in ties[:count].reshape(-1, 2).tolist():
        rows = order[start:end].copy()
        tied = _empty(len(rows), int((block.offsets[rows + 1] - block.offsets[rows]).sum()))
        gather(block.offsets, block.data, block.labels, rows, tied.offsets, tied.data, tied.labels)
        order[start:end] = rows[_order(tied, depth)]
    return order


def _ended(block: Block, depth: int) -> npt.NDArray[np.int64]:
    """Order rows that agree in KEY bytes from `depth` on, as far as they go: zeros fill those that end."""
    ends = np.minimum(np.diff(block.offsets), depth + KEY)
    order = np.argsort(ends, kind="stable")
    going = order[ends[order] == depth + KEY]  # the others are ended, and of one length they are equal
    if len(going) == 0 or int(np.diff(block.offsets)[going].max()) == depth + KEY:
        return order
    rest = Block.of([block.ids().take(_indices(going))], [block.labels[going]])
    order[len(order) - len(going) :] = going[_order(rest, depth + KEY)]
    return order


def _indices(rows: npt.NDArray[np.int64]) -> Any:
    import pyarrow as pa

    return pa.array(rows)


def _empty(rows: int, size: int) -> Block:
    return Block(np.empty(rows + 1, np.int32), np.empty(size, np.uint8), np.empty(rows, np.uint32))
