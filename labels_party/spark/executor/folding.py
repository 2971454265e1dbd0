"""Events on their way to labels, in four tasks: `arrive`, and `merge` of parts by event; `enlist`, and `fold` of parts
by example. A part is held in memory. What goes between the tasks is encrypted, but for the listed ids.

The records of one event are merged in the order of files and rows, whichever task reads them. A task that is started
again gives the same: also an event without an id has the same digest, so that it is neither lost nor counted twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from label_dp.errors import InvalidEvents, InvalidRows, InvalidTable
from label_dp.schemas.events import DataSet, EventRule
from label_dp.spark.task import attempt, rows_of
from labels_party.labels.ciphered import disclosed, enclosed
from labels_party.labels.columns import NONE
from labels_party.labels.digests import U64, EventKeys, siphash128
from labels_party.labels.events.bodies import EVENT, Events, stored_events
from labels_party.labels.events.files import column_rows
from labels_party.labels.events.fold import EFFECT, EventFold, FoldCounts, split
from labels_party.spark.executor import arriving

if TYPE_CHECKING:
    import pyarrow as pa

EVENTS, EFFECTS, EXAMPLES = 4, 5, 6  # kinds of blocks, beside those of rows that arrive
FILE, ROW = "file", "row"  # columns behind those of the members: a hash of the path, and a number
ROW_BITS = 40  # of the place of an event: the number of its file before its row
ORDERED = np.dtype([*EVENT.descr, ("at", "<i8")])
AT_ONCE = 1 << 19  # events that are parted together: blocks of few rows cost


@dataclass(frozen=True, eq=False)
class Folding:
    """Picklable; `names`: of the members of events, in the order of their columns. `files`: numbers of the files in
    their order, by the hashes of their paths. `keys` are of the digests of the rule's data set, `own` of those of
    events without an id, `key` of the batch. There are 2^`bits` parts. An example without an event that counts has the
    label `missing_index`. The methods raise TaskFailed."""

    rule: EventRule
    sets: Mapping[str, DataSet]
    names: Sequence[str]
    keys: EventKeys = field(repr=False)
    own: bytes = field(repr=False)
    key: bytes = field(repr=False)
    files: Mapping[int, int]
    bits: int
    examples: arriving.ArrivalRules
    missing_index: int
    bounds: npt.NDArray[np.bytes_]

    def arrive(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """From members of events, FILE and ROW to blocks of stored events, or one that says what is refused."""
        waiting, refused, place = list[Events](), 0, ""
        with attempt():
            for batch in batches:
                try:
                    events = self._stored(batch)
                except InvalidEvents as error:
                    place = place or self._place(batch, error)
                    refused += error.total
                else:
                    waiting += [events] if not refused else []
                if sum(map(len, waiting)) >= AT_ONCE:
                    yield self._blocks(EVENTS, np.concatenate(waiting), "event_high")
                    waiting.clear()
            if refused:
                yield arriving.refusal(refused, place)
            elif sum(map(len, waiting)):
                yield self._blocks(EVENTS, np.concatenate(waiting), "event_high")

    def merge(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """From blocks of stored events, all of some events, to blocks of what these do to examples."""
        with attempt():
            records, others = list[Events](), list[tuple[Any, ...]]()
            for row in rows_of(batches):
                if row[1] == EVENTS:
                    records.append(np.frombuffer(disclosed(self.key, row[4], arriving.PLACE), ORDERED))
                else:
                    others.append(row)
            fold, whole = self._fold(), np.concatenate([np.zeros(0, ORDERED), *records])
            effects = fold.effects(whole.take(np.argsort(whole["at"])))
            if len(effects):
                yield self._blocks(EFFECTS, effects, "high")
            yield self._passed(others, fold.counts)

    def enlist(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """From rows of the list of examples to blocks of them, or one that says how many are refused."""
        fold, refused = self._fold(), 0
        with attempt():
            for batch in batches:
                try:
                    ids, times = self.examples.read(batch)
                except (InvalidRows, InvalidTable) as error:
                    refused += error.total if isinstance(error, InvalidRows) else max(1, batch.num_rows)
                    continue
                if not refused and len(ids):
                    high = fold.examples(ids, None)["high"]
                    part = high >> np.uint64(64 - self.bits) if self.bits else np.zeros(len(ids))
                    yield arriving.id_blocks(EXAMPLES, ids, part.astype(np.uint16), times.astype("<i8"), self.key)
            if refused:
                yield arriving.refusal(refused)

    def fold(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """From blocks of some examples, and of all that events do to them, to blocks of labels."""
        with attempt():
            effects, examples, others = list[Events](), list[tuple[Any, ...]](), list[tuple[Any, ...]]()
            for row in rows_of(batches):
                if row[1] == EFFECTS:
                    effects.append(np.frombuffer(disclosed(self.key, row[4], arriving.PLACE), EFFECT))
                else:
                    (examples if row[1] == EXAMPLES else others).append(row)
            fold, ids = self._fold(), arriving.ids_of(examples)
            times = [np.frombuffer(disclosed(self.key, row[4], arriving.PLACE), "<i8") for row in examples]
            rows = fold.examples(ids, np.concatenate([np.zeros(0, np.int64), *times]))
            labels = fold.labels(np.concatenate([np.zeros(0, EFFECT), *effects]), rows, self.examples.domain)
            if len(ids):
                index = np.where(labels == NONE, np.uint32(self.missing_index), labels).astype("<u4")
                yield arriving.id_blocks(arriving.LABELLED, ids, arriving.ranges_of(ids, self.bounds), index, self.key)
            yield self._passed(others, fold.counts)

    # --- parts ------------------------------------------------------------------------------------------------

    def _fold(self) -> EventFold:
        return EventFold(self.rule, self.keys, 0, Path())  # of one part, so that nothing is spilled

    def _stored(self, batch: pa.RecordBatch) -> Events:
        """Return the events of the rule's data set with their places. Raises InvalidEvents."""
        members = dict(zip(self.names, batch.columns, strict=False))
        at, rows = self._places(batch), column_rows(range(batch.num_rows), members)

        def without_id(numbers: Iterable[int]) -> tuple[U64, U64]:
            import pyarrow as pa

            return siphash128(pa.array([str(at[number]) for number in numbers], pa.string()), self.own)

        # those of other data sets keep their rules, and are not looked at
        of_sets = stored_events(rows, self.sets, dict.fromkeys(self.sets, self.keys), without_id)
        events = of_sets.get(self.rule.data_set_id, np.zeros(0, EVENT))
        ordered = np.zeros(len(events), ORDERED)
        for name in EVENT.names or ():
            ordered[name] = events[name]
        ours = np.array([name == self.rule.data_set_id for name in rows.of("data_set_id")], np.bool_)
        ordered["at"] = at[ours]
        return ordered

    def _places(self, batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
        hashes, which = np.unique(batch.column(FILE).to_numpy(), return_inverse=True)
        numbers = np.array([self.files[name] for name in hashes.tolist()], np.int64)
        places: npt.NDArray[np.int64] = (numbers << np.int64(ROW_BITS))[which] | batch.column(ROW).to_numpy()
        return places

    def _place(self, batch: pa.RecordBatch, error: InvalidEvents) -> str:
        first = error.problems[0]
        at = int(self._places(batch)[first.row])
        place = {"file": at >> ROW_BITS, "row": at & ((1 << ROW_BITS) - 1), "field": first.field, "rule": first.rule}
        return json.dumps(place)

    def _blocks(self, kind: int, rows: npt.NDArray[np.void], digest: str) -> pa.RecordBatch:
        parts = list(split(rows, digest, self.bits))
        contents = [enclosed(self.key, np.ascontiguousarray(rows).tobytes(), arriving.PLACE) for _, rows in parts]
        empty = [b""] * len(parts)
        return arriving.block_rows([part for part, _ in parts], [kind] * len(parts), empty, empty, contents)

    def _passed(self, blocks: list[tuple[Any, ...]], counts: FoldCounts) -> pa.RecordBatch:
        """Blocks that the next task only hands on: those that came, and one of counts."""
        values = np.array(list(counts.as_json().values()), "<i8")
        own = (0, arriving.COUNTS, b"", b"", enclosed(self.key, values.tobytes(), arriving.PLACE))
        return arriving.block_rows(*map(list, zip(*blocks, own, strict=True)))


def counts_of(blocks: bytes, key: bytes) -> dict[str, int]:
    """Add up the counts of tasks, one after the other as they were encrypted. Raises DamagedObject."""
    names = list(FoldCounts().as_json())
    size = len(enclosed(key, bytes(8 * len(names)), arriving.PLACE))
    pieces = [disclosed(key, blocks[at : at + size], arriving.PLACE) for at in range(0, len(blocks), size)]
    sums = sum((np.frombuffer(piece, "<i8") for piece in pieces), np.zeros(len(names), np.int64))
    return dict(zip(names, sums.tolist(), strict=True))
