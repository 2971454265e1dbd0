"""Unit bound: over a population's lifetime at most N examples per unit keep their label.

All examples of sealed batches count, released or not: the simpler and more private choice. Excess follows from ids and
units alone, in id order, before a label is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from sqlalchemy.engine import Connection

from label_dp.errors import Conflict, Refusal
from labels_party.labels.at_rest import digest_key
from labels_party.labels.batches import UNITS, Batch, Batches, Segment, StaleBatch
from labels_party.labels.digests import siphash128
from labels_party.labels.members import pairs_of, stored
from labels_party.labels.parsing import ID, UNIT
from labels_party.labels.runs import EMPTY, Run, locate, members, repeated, sort_run
from labels_party.labels.sorting import SHOWN_IDS, Excess, LabelSort, StoredExamples
from labels_party.labels.vault import LabelVault
from labels_party.ledger.populations import Population
from labels_party.storage.secrets import Secrets

if TYPE_CHECKING:
    import pyarrow as pa

Counts = npt.NDArray[np.int64]
AT_ONCE = 1 << 20


class TooManyExamples(Refusal):
    """Refusal of a batch beyond the unit bound; shows ids, never labels, to the owner only."""

    code = "too-many-examples-of-a-unit"
    title = "Too many examples of a unit"
    status = 409

    def __init__(self, most: int, examples: list[str]) -> None:
        super().__init__(
            f"Some units would have more than {most} examples over the population's lifetime, for instance by example "
            f"'{examples[0]}', and the population has no missing-label value to take instead of the label. Leave those "
            "examples out of the batch."
        )
        self.examples = examples

    def extras(self) -> dict[str, object]:
        return {"examples_in_excess": self.examples}


@dataclass(frozen=True)
class UnitTally:
    """Units of one batch, without erased ones. `units`: keyed digests as a run. `kept`: examples per unit that keep
    their label, int64[n]. `beyond`: examples that lose it to the bound."""

    units: Run
    kept: Counts
    beyond: int = 0


class Units:
    """Tallies of units, and the bound they enforce."""

    def __init__(self, batches: Batches, vault: LabelVault, secrets_: Secrets, sort: LabelSort) -> None:
        self.batches, self.vault, self.secrets, self.sort = batches, vault, secrets_, sort

    def judge(
        self,
        batch: Batch,
        population: Population,
        examples: StoredExamples,
        earlier: list[Segment],
        erased: Run = EMPTY,
    ) -> tuple[UnitTally, Excess | None]:
        """Compute the tally of a batch, and its examples in excess of their units' allowances.

        `earlier`: tallies of the population's sealed batches. No example of a unit in `erased` keeps its label. Raises
        TooManyExamples if there is an excess and no missing-label value.
        """
        most = population.unit.max_examples
        assert most is not None
        key = self.key(population)
        source = [s for s in (examples.listed or examples.labels) if s.rows]
        several = not examples.listed and examples.may_repeat  # then an id may come with more than one unit
        units, counts = self._counted(source, key)
        allowances = np.maximum(most - self._used(earlier, units), 0)
        gone = members(erased, units)
        allowances[gone] = 0
        tight = counts > allowances  # counts every record of an id, so this errs on the safe side
        if not several and not tight.any():
            return UnitTally(units, counts), None
        marked = np.ones(len(allowances), np.bool_) if several else tight
        id_key = digest_key(self.secrets, batch.label)
        remaining, without, first, dropped = self._chosen(source, key, units, allowances, marked, id_key)
        remaining = np.where(marked, remaining, counts)
        some = remaining > 0
        tally = UnitTally((units[0][some], units[1][some]), remaining[some], int(without[~gone].sum()))
        if first and population.missing_index is None:
            raise TooManyExamples(most, first)
        return tally, Excess(dropped, id_key) if first else None

    def key(self, population: Population) -> bytes:
        """Derive the key of the population's unit digests."""
        return self.secrets.derive("units:" + population.id)

    def digests(self, population: Population, units: pa.Array) -> Run:
        """Digest canonical unit names, in order."""
        return siphash128(units, self.key(population))

    def store_members(self, key: str, batch: Batch, population: Population, examples: StoredExamples) -> int:
        """Store the unit of each example; return the number of rows."""
        rows = (
            (ids, units) for _, ids, units in self.rows([s for s in (examples.listed or examples.labels) if s.rows])
        )
        pairs = pairs_of(rows, digest_key(self.secrets, batch.label), self.key(population))
        return self.vault.put_numbers(key, stored(pairs))

    def store(self, key: str, tally: UnitTally) -> int:
        """Store a tally; return its number of rows."""
        return self.vault.put_numbers(key, [(*tally.units, tally.kept.astype(np.uint64))])

    def earlier(self, connection: Connection, population: Population) -> list[Segment]:
        """List the tallies of the population's sealed batches. Raises Conflict if a batch was sealed without one: no
        bound could be guaranteed then."""
        segments: list[Segment] = []
        for batch in self.batches.of_population(connection, population.id):
            if batch.seal_order is None:
                continue
            tallies = self.batches.segments(connection, batch.id, UNITS)
            if not tallies:
                raise Conflict(
                    f"Batch '{batch.id}' of this population was sealed before units were counted, so no bound per "
                    "unit can be kept here; declare a new population."
                )
            segments += tallies
        return segments

    def check_again(
        self, connection: Connection, population: Population, tally: UnitTally, read_before: list[Segment]
    ) -> None:
        """Check inside the seal's transaction for new tallies of the same units. Raises StaleBatch if a batch whose
        tally is not in `read_before` has a unit of `tally`: both would use one allowance."""
        keys = {segment.key for segment in read_before}
        for segment in self.earlier(connection, population):
            for units, _ in self._tallied(segment) if segment.key not in keys else ():
                if members(tally.units, units).any():
                    raise StaleBatch("Another batch of the same units was sealed meanwhile.")

    # --- parts --------------------------------------------------------------------------------------------

    def rows(self, source: list[Segment]) -> Iterator[tuple[Segment, Any, Any]]:
        """Yield (segment, ids, units) of the records, in order. Raises Conflict if units are missing."""
        for segment in source:
            for batch in self.vault.scan(segment.key, segment.start, segment.rows):
                if UNIT not in batch.schema.names:
                    raise Conflict("This batch holds records without their unit; discard it and send them again.")
                yield segment, batch.column(ID), batch.column(UNIT)

    def _counted(self, source: list[Segment], key: bytes) -> tuple[Run, Counts]:
        """Count the records of each distinct unit."""
        parts: list[tuple[Run, Counts]] = []
        waiting: list[Run] = []
        for _, _, units in self.rows(source):
            waiting.append(siphash128(units, key))
            if sum(len(w[0]) for w in waiting) >= AT_ONCE:
                parts.append(_totals([(w, np.ones(len(w[0]), np.int64)) for w in waiting]))
                waiting.clear()
        return _totals(parts + [(w, np.ones(len(w[0]), np.int64)) for w in waiting])

    def _tallied(self, segment: Segment) -> Iterator[tuple[Run, Counts]]:
        for low, high, counts in self.vault.numbers(segment.key, 3):
            yield (low, high), counts.astype(np.int64)

    def _used(self, earlier: list[Segment], units: Run) -> Counts:
        """Count int64[n] examples of each unit that keep their label in earlier batches."""
        used = np.zeros(len(units[0]), np.int64)
        for segment in earlier:
            for batch_units, counts in self._tallied(segment):
                ours = members(units, batch_units)
                shared = batch_units[0][ours], batch_units[1][ours]
                used[locate(units, shared)] += counts[ours]  # a tally has each unit once
        return used

    def _chosen(
        self,
        source: list[Segment],
        key: bytes,
        units: Run,
        allowances: Counts,
        marked: npt.NDArray[np.bool_],
        id_key: bytes,
    ) -> tuple[Counts, Counts, list[str], Run]:
        """Return per chosen unit the examples that keep their label and those that do not, some ids and all digests of
        the latter. The first `allowances` ids in bytewise order keep it; the unit of an id's last record counts."""
        import pyarrow as pa

        remaining, counts = np.zeros(len(allowances), np.int64), np.zeros(len(allowances), np.int64)
        first: list[str] = []
        lows, highs = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint64)]
        with self.sort.begin() as id_sort:
            for _, ids, names in self.rows(source):
                low, high = siphash128(names, key)
                sorted_names, order = sort_run(low, high)
                place = np.empty(len(low), np.int64)
                place[order] = locate(units, sorted_names)
                rows = marked[place]
                id_sort.add(ids.filter(pa.array(rows)), place[rows].astype(np.uint32))
            for block in id_sort.blocks():
                block = block.last_of_each()
                place = block.labels.astype(np.int64)
                stays = counts[place] + _earlier_alike(place) < allowances[place]
                counts += np.bincount(place, minlength=len(allowances))
                remaining += np.bincount(place[stays], minlength=len(allowances))
                gone = block.ids().filter(pa.array(~stays))
                first += gone.slice(0, max(0, SHOWN_IDS - len(first))).to_pylist()
                low, high = siphash128(gone, id_key)
                lows.append(low)
                highs.append(high)
        return remaining, counts - remaining, first, sort_run(np.concatenate(lows), np.concatenate(highs))[0]


def _earlier_alike(place: Counts) -> Counts:
    """Count int64[m] earlier equal entries of each."""
    order = np.argsort(place, kind="stable")
    grouped = place[order]
    starts = np.flatnonzero(np.concatenate([[True], grouped[1:] != grouped[:-1]]))
    sizes = np.diff(np.append(starts, len(place)))
    earlier = np.empty(len(place), np.int64)
    earlier[order] = np.arange(len(place)) - np.repeat(starts, sizes)
    return earlier


def _totals(parts: list[tuple[Run, Counts]]) -> tuple[Run, Counts]:
    """Sum counts by distinct digest."""
    empty = np.zeros(0, np.uint64)
    low = np.concatenate([empty, *(p[0][0] for p in parts)])
    high = np.concatenate([empty, *(p[0][1] for p in parts)])
    counts = np.concatenate([np.zeros(0, np.int64), *(p[1] for p in parts)])
    run, order = sort_run(low, high)
    starts = np.flatnonzero(~repeated(run))
    return (run[0][starts], run[1][starts]), np.add.reduceat(counts[order], starts) if starts.size else counts
