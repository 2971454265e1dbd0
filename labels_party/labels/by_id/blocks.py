"""Block: rows of ids and labels as the buffers of the compiled steps."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from labels_party.labels.digests import id_buffers

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Block:
    """n rows: the i-th id is data[offsets[i] : offsets[i + 1]], UTF-8; `labels` are domain positions or a marker for
    none."""

    offsets: npt.NDArray[np.int32]
    data: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.uint32]

    @classmethod
    def of(cls, ids: list[pa.Array], labels: list[npt.NDArray[np.uint32]]) -> Block:
        """Build a block from Arrow string arrays without nulls and a label per row; below 2³¹ bytes of ids."""
        import pyarrow as pa

        offsets, data = id_buffers(ids[0] if len(ids) == 1 else pa.concat_arrays(ids))
        first, end = int(offsets[0]), int(offsets[-1])
        return cls((offsets - first).astype(np.int32), data[first:end], np.concatenate(labels))

    @classmethod
    def joined(cls, blocks: list[Block]) -> Block:
        """Concatenate blocks."""
        if len(blocks) == 1:
            return blocks[0]
        bounds = [(int(b.offsets[0]), int(b.offsets[-1])) for b in blocks]
        starts = np.cumsum([0, *(end - first for first, end in bounds)]).tolist()
        moved = [b.offsets[:-1] + (at - first) for b, at, (first, _) in zip(blocks, starts, bounds, strict=False)]
        offsets = np.concatenate([*moved, starts[-1:]], dtype=np.int32, casting="unsafe")
        data = np.concatenate([b.data[first:end] for b, (first, end) in zip(blocks, bounds, strict=True)])
        return cls(offsets, data, np.concatenate([b.labels for b in blocks]))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def id_bytes(self) -> int:
        return int(self.offsets[-1]) - int(self.offsets[0])

    @property
    def size(self) -> int:
        """Bytes of memory for the rows."""
        return self.id_bytes + 8 * len(self)

    def part(self, start: int, stop: int) -> Block:
        """Return rows [start, stop), in the same memory."""
        return Block(self.offsets[start : stop + 1], self.data, self.labels[start:stop])

    def id(self, row: int) -> bytes:
        return self.data[self.offsets[row] : self.offsets[row + 1]].tobytes()

    def before(self, bound: bytes) -> int:
        """Count the rows of a sorted block with a smaller id."""
        return bisect_left(range(len(self)), bound, key=self.id)

    def last_of_each(self) -> Block:
        """Keep the last of adjacent rows with one id."""
        import pyarrow as pa
        import pyarrow.compute as pc

        ids = self.ids()
        last = np.ones(len(self), np.bool_)
        last[:-1] = pc.not_equal(ids.slice(0, len(ids) - 1), ids.slice(1)).to_numpy(zero_copy_only=False)
        return self if last.all() else Block.of([ids.filter(pa.array(last))], [self.labels[last]])

    def ids(self) -> pa.StringArray:
        """Return the ids, in the same memory."""
        import pyarrow as pa

        return pa.StringArray.from_buffers(len(self), pa.py_buffer(self.offsets), pa.py_buffer(self.data))


def total(blocks: Iterable[Block]) -> int:
    """Count the rows of all blocks."""
    return sum(map(len, blocks))
