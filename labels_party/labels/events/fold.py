"""Fold of events into one label an example, in bounded memory.

Records of one event are merged, then the events of one example are folded, each step in parts by digest that fit in
memory; what lies on disk meanwhile is encrypted. The result does not depend on the order of events, only on that of the
records of one event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from label_dp.domain import Domain
from label_dp.label_values import positions
from label_dp.schemas.events import EventRule, Take
from labels_party.labels.columns import NONE
from labels_party.labels.digests import U64, EventKeys, siphash128
from labels_party.labels.events import bodies
from labels_party.labels.runs import locate, repeated, sort_run
from labels_party.labels.spool import Spool

if TYPE_CHECKING:
    import pyarrow as pa

I64 = npt.NDArray[np.int64]
Rows = npt.NDArray[np.void]
Floats = npt.NDArray[np.float64]
Marks = npt.NDArray[np.bool_]
ROWS_OF_PART, MOST_PARTS = 1 << 20, 256
LOW_BITS = np.int64(32)
LOW_MASK = np.int64((1 << 32) - 1)
# an event that counts, of whichever example: what is left of it after its records were merged
EFFECT = np.dtype([("low", "<u8"), ("high", "<u8"), ("time", "<i8"), ("amount", "<i8"), ("sign", "<i8")])
LISTED = np.dtype([("low", "<u8"), ("high", "<u8"), ("time", "<i8"), ("row", "<i8")])
Examples = Iterable[tuple["pa.Array", I64 | None]]  # ids, and their times in Unix seconds where a window needs them


@dataclass
class FoldCounts:
    """What became of the records of a fold; made of raw labels, for the owner alone. Each record or event is in one."""

    records: int = 0
    repeats: int = 0  # records merged into an earlier one of the same event
    other_type: int = 0
    mmt_only: int = 0
    without_example: int = 0
    without_value: int = 0
    other_currency: int = 0
    not_listed: int = 0
    outside_window: int = 0
    counted: int = 0
    examples: int = 0  # of the list, with at least one event that counts

    def as_json(self) -> dict[str, int]:
        return asdict(self)


class DigestParts:
    """Rows of one type in 2^`bits` parts by a digest; each part is read once, whole."""

    def __init__(self, kind: np.dtype[Any], digest: str, bits: int, spill: Path) -> None:
        self.bits, self._kind, self._digest = bits, kind, digest
        self._spools = [Spool(spill) for _ in range(1 << bits)]

    def close(self) -> None:
        for spool in self._spools:
            spool.close()

    def add(self, rows: Rows) -> None:
        """Add rows[n] of the type. Raises OSError."""
        for part, of_part in split(rows, self._digest, self.bits):
            self._spools[part].add(np.ascontiguousarray(of_part).view(np.uint8).data)

    def read(self) -> Iterator[Rows]:
        """Yield each part in the order of addition, and drop it. Raises OSError."""
        for spool in self._spools:
            spool.seek(0)
            rows = np.frombuffer(spool.read(), self._kind)
            spool.close()
            yield rows


def split(rows: Rows, digest: str, bits: int) -> Iterator[tuple[int, Rows]]:
    """Yield those of 2^`bits` parts by a digest that have rows, each with its rows in their order."""
    if not bits:
        yield from [(0, rows)] if len(rows) else []
        return
    part = (rows[digest] >> np.uint64(64 - bits)).astype(np.uint16)
    order = np.argsort(part, kind="stable")
    ends = np.cumsum(np.bincount(part, minlength=1 << bits))
    rows = rows.take(order)  # ten times as quick as an index of rows
    for number, (start, stop) in enumerate(zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)):
        if stop > start:
            yield number, rows[start:stop]


def bits_of(rows: int, most: int = MOST_PARTS) -> int:
    """Return how many bits of a digest part so many rows, into `most` parts at most."""
    return max(0, min(most, -(-rows // ROWS_OF_PART)) - 1).bit_length()


class EventFold:
    """Fold of the events of one population. `rows`: about how many records or examples there are, whichever is more.
    Temporary files lie below `spill`. Its steps on one part, `effects` and `labels`, serve tasks of an engine too."""

    def __init__(self, rule: EventRule, keys: EventKeys, rows: int, spill: Path) -> None:
        self.rule, self.keys, self.counts = rule, keys, FoldCounts()
        self._bits = bits_of(rows)
        self._spill = spill
        self._records = DigestParts(bodies.EVENT, "event_high", self._bits, spill)

    def close(self) -> None:
        self._records.close()

    def add(self, records: bodies.Events) -> None:
        """Add records in the order of their arrival. Raises OSError."""
        self._records.add(records)

    def positions(self, examples: Examples, n: int, domain: Domain) -> npt.NDArray[np.uint32]:
        """Return the domain position of the label of each of the `n` examples, uint32[n]; NONE where no event counts.
        Call it once. Raises OSError."""
        labels = np.full(n, NONE)
        with ExitStack() as stack:
            effects, rows = (DigestParts(kind, "high", self._bits, self._spill) for kind in (EFFECT, LISTED))
            stack.callback(effects.close)
            stack.callback(rows.close)
            for records in self._records.read():
                effects.add(self.effects(records))
            start = 0
            for ids, times in examples:
                rows.add(self.examples(ids, times, start))
                start += len(ids)
            for some, of_part in zip(effects.read(), rows.read(), strict=True):
                labels[of_part["row"]] = self.labels(some, of_part, domain)
        return labels

    # --- records of one event to what it does -------------------------------------------------------------------

    def effects(self, records: bodies.Events) -> Rows:
        """Merge the records of each event, all of which are among these, and select the events that the rule counts."""
        self.counts.records += len(records)
        events = merged(records)
        self.counts.repeats += len(records) - len(events)
        signs, of_rule = self._signs(events["type"])
        events, signs = self._left(events, signs, of_rule, "other_type")
        if self.rule.mmt_only == "leave-out":
            events, signs = self._left(events, signs, ~bodies.has(events, bodies.MMT_ONLY), "mmt_only")
        events, signs = self._left(events, signs, bodies.has(events, bodies.HAS_EXAMPLE), "without_example")
        if self.rule.currency is not None and self.rule.of_values:
            events, signs = self._left(events, signs, bodies.has(events, bodies.HAS_VALUE), "without_value")
            ours = events["currency"] == np.uint32(bodies.currency_number(self.rule.currency))
            events, signs = self._left(events, signs, ours, "other_currency")
        effects = np.zeros(len(events), EFFECT)
        effects["low"], effects["high"], effects["time"] = events["example_low"], events["example_high"], events["time"]
        amounts = np.where(signs < 0, -np.abs(events["amount"]), events["amount"])  # 20 and −20 are one refund
        effects["amount"], effects["sign"] = amounts, signs
        return effects

    def _signs(self, types: U64) -> tuple[I64, Marks]:
        """Return the sign of each type, and whether the rule names it."""
        import pyarrow as pa

        names = pa.array(list(self.rule.types), pa.string())
        digests, signs = siphash128(names, self.keys.type)[0], np.zeros(len(types), np.int64)
        for digest, sign in zip(digests, self.rule.types.values(), strict=True):
            signs[types == digest] = 1 if sign == "+" else -1
        return signs, signs != 0

    def _left(self, events: bodies.Events, signs: I64, stay: Marks, reason: str) -> tuple[bodies.Events, I64]:
        """Leave the events out that do not stay, and count them under `reason`."""
        gone = len(stay) - int(np.count_nonzero(stay))
        setattr(self.counts, reason, getattr(self.counts, reason) + gone)
        return (events, signs) if not gone else (events.take(np.flatnonzero(stay)), signs[stay])

    # --- events of one example to its label -----------------------------------------------------------------------

    def examples(self, ids: pa.Array, times: I64 | None, start: int = 0) -> Rows:
        """Return listed examples from row `start` on by their digests."""
        rows = np.zeros(len(ids), LISTED)
        rows["low"], rows["high"] = siphash128(ids, self.keys.example)
        rows["row"] = np.arange(start, start + len(ids))
        if times is not None:
            rows["time"] = times
        return rows

    def labels(self, effects: Rows, rows: Rows, domain: Domain) -> npt.NDArray[np.uint32]:
        """Return the domain positions of listed examples, or NONE; all their effects are among these."""
        import pyarrow as pa

        if not len(rows):
            self.counts.not_listed += len(effects)
            return np.full(0, NONE)
        values, marks = self._folded(effects, rows)
        self.counts.examples += int(np.count_nonzero(marks))
        places = positions(pa.array(values), values, domain)[0].astype(np.uint32)
        return np.where(marks, places, NONE)

    def _folded(self, effects: Rows, rows: Rows) -> tuple[Floats, Marks]:
        """Return the labels of a part's examples, and which have any."""
        run, order = sort_run(*_halves(rows))
        examples, by_example = sort_run(*_halves(effects))
        effects, place = effects.take(by_example), locate(run, examples)  # in order, each search begins where one ended
        hits = (run[0][place] == examples[0]) & (run[1][place] == examples[1])
        effects, place = self._left(effects, place, hits, "not_listed")
        window = self.rule.window_seconds
        if window is not None:
            age = effects["time"] - rows["time"][order][place]
            effects, place = self._left(effects, place, (age >= 0) & (age < window), "outside_window")
        self.counts.counted += len(effects)
        labels, marks = np.zeros(len(rows), np.float64), np.zeros(len(rows), np.bool_)
        marks[order[place]] = True
        labels[order] = TAKES[self.rule.take](place, effects, len(rows))
        return labels, marks


def _halves(rows: Rows) -> tuple[U64, U64]:
    return np.ascontiguousarray(rows["low"]), np.ascontiguousarray(rows["high"])


def merged(records: bodies.Events) -> bodies.Events:
    """Merge the records of each event: of every member the last one that is there. Records are in order of arrival."""
    if not len(records):
        return records
    run, order = sort_run(np.ascontiguousarray(records["event_low"]), np.ascontiguousarray(records["event_high"]))
    starts = np.flatnonzero(~repeated(run))
    if len(starts) == len(records):
        return records
    ordered = records.take(order)
    ends = np.append(starts[1:], len(ordered)) - 1
    events: bodies.Events = ordered[ends]
    for flag, fields in (
        (bodies.HAS_EXAMPLE, ("example_low", "example_high")),
        (bodies.HAS_VALUE, ("amount", "currency")),
    ):
        last, some = _last_with(ordered, starts, flag)
        for field in fields:
            events[field] = np.where(some, ordered[field][last], events[field])
        events["flags"] |= np.where(some, np.uint32(flag), np.uint32(0))
    last, some = _last_with(ordered, starts, bodies.HAS_MMT)
    mmt = np.where(some, ordered["flags"][last] & np.uint32(bodies.HAS_MMT | bodies.MMT_ONLY), np.uint32(0))
    events["flags"] = (events["flags"] & np.uint32(bodies.HAS_EXAMPLE | bodies.HAS_VALUE)) | mmt
    return events


def _last_with(ordered: bodies.Events, starts: I64, flag: int) -> tuple[I64, Marks]:
    """Find the last record of each group that has a flag, and whether there is one."""
    last = np.maximum.reduceat(np.where(bodies.has(ordered, flag), np.arange(len(ordered)), -1), starts)
    return np.maximum(last, 0), last >= 0


# --- what is taken of the events of an example -----------------------------------------------------------------


def _sums(place: I64, effects: Rows, n: int) -> Floats:
    """Sum amounts exactly, however many there are: by halves, which cannot overflow."""
    high, low = np.zeros(n, np.int64), np.zeros(n, np.int64)
    np.add.at(high, place, effects["amount"] >> LOW_BITS)
    np.add.at(low, place, effects["amount"] & LOW_MASK)
    high, low = high + (low >> LOW_BITS), low & LOW_MASK
    whole = (np.clip(high, -(1 << 30), (1 << 30) - 1) << LOW_BITS) | low
    return whole / bodies.MICRO


def _counts(place: I64, effects: Rows, n: int) -> Floats:
    counts = np.zeros(n, np.int64)
    np.add.at(counts, place, effects["sign"])
    return counts.astype(np.float64)


def _at_end(*keys: str) -> Callable[[I64, Rows, int], Floats]:
    """Return what takes the amount of the last event by these keys, the first of them last; "-…" turns one around."""

    def take(place: I64, effects: Rows, n: int) -> Floats:
        order = np.lexsort([-effects[key[1:]] if key.startswith("-") else effects[key] for key in keys])
        labels = np.zeros(n, np.float64)
        labels[place[order]] = effects["amount"][order] / bodies.MICRO  # of several the last one stays
        return labels

    return take


TAKES: dict[Take, Callable[[I64, Rows, int], Floats]] = {
    "any": lambda place, effects, n: (_counts(place, effects, n) > 0).astype(np.float64),
    "count": _counts,
    "sum": _sums,
    "first": _at_end("amount", "-time"),  # of the same second the larger one
    "last": _at_end("amount", "time"),
    "max": _at_end("amount"),
}
