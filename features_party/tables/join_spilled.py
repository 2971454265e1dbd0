"""Join of feature files and messages of any size, spilled to disk inside the home.

Ids are matched bucket by bucket: (id, row) of the features, (id, output, row) of the messages. Matches lie on disk by
ranges of feature rows, and are merged in one more pass over the feature file, whose columns never leave Arrow and keep
their types.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from features_party.receive.accepted import AcceptedMessage
from features_party.tables.buckets import Buckets, IdHash
from features_party.tables.feature_files import FeatureFile
from features_party.tables.join import correct_message, label_columns, refuse_nothing_matched, refuse_taken
from features_party.tables.output import writing
from features_party.tables.unmatched import SILENT, Counts, Limits, Unmatched, check_unmatched
from features_party.training.correction import Correction
from label_dp.ahead import ahead
from label_dp.columnar.tables import canonical_ids, duplicate_rows
from label_dp.errors import InvalidRows, InvalidTable, RowProblem, Unavailable
from label_dp.progress import Progress
from label_dp.store.table_addresses import TableAddress

if TYPE_CHECKING:
    import pyarrow as pa

AT_ONCE = 1 << 20  # largest average of pairs in one file
INDEX_BITS = 40  # of 64; the upper ones are the row within the file's range
IntArray = npt.NDArray[np.int64]
NONE = np.empty(0, np.uint64)
PARTS = 32  # a bucket's ids take about this fraction of the memory; their processing takes a few times as much
MIB = 1 << 20
Listed = Callable[[Any, str], None]


class Ranges:
    """Pairs (row, index), with rows below `rows` and indices below 2⁴⁰, in files of `folder` whose names begin with
    `name`; about `expected` pairs. `count` is their number so far."""

    def __init__(self, folder: Path, name: str, rows: int, expected: int) -> None:
        self._folder, self._name = folder, name
        each = max(-(-expected // max(rows, 1)), 1)
        self._width = max(AT_ONCE // each, 1)
        self._next, self._rest = 0, NONE
        self.count, self._ranges = 0, -(-rows // self._width)

    def add(self, row: IntArray, index: IntArray) -> None:
        """Add N pairs; int64[N] both."""
        if not len(row):
            return
        self.count += len(row)
        place = row // self._width
        order = np.argsort(place.astype(np.uint16) if self._ranges < 1 << 16 else place, kind="stable")
        keys = (row - place * self._width).astype(np.uint64) << np.uint64(INDEX_BITS) | index.astype(np.uint64)
        keys, place = keys[order], place[order]
        starts = np.flatnonzero(np.diff(place, prepend=-1))
        for start, stop in zip(starts, [*starts[1:], len(keys)], strict=True):
            with self._path(int(place[start])).open("ab") as file:
                keys[start:stop].tofile(file)

    def up_to(self, stop: int) -> tuple[IntArray, IntArray]:
        """Return (row, index) int64[·] of the next pairs with a row below `stop`, by row and then by index; call it
        with rising stops, after the last `add`."""
        rows, indices = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        while len(self._rest) or self._next * self._width < stop:
            if not len(self._rest):
                self._fetch()
                continue
            start = (self._next - 1) * self._width
            at = int(np.searchsorted(self._rest, np.uint64(max(stop - start, 0) << INDEX_BITS)))
            keys, self._rest = self._rest[:at], self._rest[at:]
            rows.append(start + (keys >> np.uint64(INDEX_BITS)).astype(np.int64))
            indices.append((keys & np.uint64((1 << INDEX_BITS) - 1)).astype(np.int64))
            if len(self._rest):
                break
        return np.concatenate(rows), np.concatenate(indices)

    def _fetch(self) -> None:
        path = self._path(self._next)
        self._next += 1
        if path.exists():
            self._rest = np.fromfile(path, np.uint64)
            self._rest.sort()
            path.unlink()

    def _path(self, number: int) -> Path:
        return self._folder / f"{self._name}-{number}"


@dataclass
class _Matches:
    """Matches of feature rows and outputs; message rows without features, each id once; numbers of matched examples and
    of those with several outputs; a sample of unmatched ids."""

    matches: Ranges
    lonely: Ranges
    examples: int = 0
    repeated: int = 0
    unmatched: Unmatched = field(default_factory=Unmatched)


@dataclass
class SpilledJoin:
    """Join in a folder of its own. Use `open`, then `load_features`, `load_messages`, and `write` or `meet` and `rows`,
    in this order. `corrections`: of the `messages`."""

    folder: Path
    features: FeatureFile
    progress: Progress
    bucket_bytes: int
    feature_rows: int = 0
    message_rows: int = 0
    _hash: IdHash = field(default_factory=IdHash.fresh, repr=False)
    messages: list[AcceptedMessage] = field(default_factory=list)
    corrections: list[Correction] = field(default_factory=list)

    @classmethod
    @contextmanager
    def open(cls, features: FeatureFile, folder: Path, progress: Progress, *, memory_mb: int) -> Iterator[SpilledJoin]:
        """Create `folder`, and remove it at the end. Raises Unavailable if the disk has no room."""
        refuse_taken(features.schema.names)
        try:
            folder.mkdir(parents=True, mode=0o700)
            yield cls(folder, features, progress, memory_mb * MIB // PARTS)
        except OSError:
            raise Unavailable(f"The join cannot spill into '{folder.parent}'; make room there.") from None
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def load_features(self) -> None:
        """Load the ids of the features. Raises InvalidRows (bad or repeated ids), InvalidTable (no rows)."""
        self._ids = Buckets(self.folder, "features", ("row",), self._hash, self._bits(self.features.id_bytes()))
        for ids in self.features.ids():
            self._ids.add(ids, np.arange(self.feature_rows, self.feature_rows + len(ids)))
            self.feature_rows += len(ids)
            self.progress(f"reading ids, {self.feature_rows:,} rows", 0.0)
        self._ids.flush()
        if not self.feature_rows:
            raise InvalidTable(f"'{self.features.path}' has no rows.")
        repeated: list[int] = []
        for number in range(1 << self._ids.bits):
            ids, (row,) = self._ids.read(number)
            repeated += row[duplicate_rows(ids)].tolist()
        if repeated:
            rule, first_rows = "this id occurred in an earlier row", sorted(repeated)[: InvalidRows.shown]
            raise InvalidRows([RowProblem(at, self.features.id_column, rule) for at in first_rows], len(repeated))

    def load_messages(self, messages: list[AcceptedMessage], correction: str) -> None:
        """Load the rows of accepted messages, each with its own correction. Raises MalformedManifest, InvalidMechanism
        (no `debias` exists)."""
        total = sum(message.manifest.n for message in messages)
        size = sum(entry.bytes for message in messages for entry in message.manifest.message_files)
        bits = max(self._bits(2 * size), self._ids.bits)
        self._outputs, first = Buckets(self.folder, "labels", ("output", "at"), self._hash, bits), 0
        for message in messages:
            occurrences = np.zeros(message.manifest.read_channel().m, dtype=np.int64)
            for part in message.batches():
                bins = part["bin"].to_numpy()
                occurrences += np.bincount(bins, minlength=len(occurrences))
                at = np.arange(self.message_rows, self.message_rows + len(bins))
                self._outputs.add(part["example_id"].combine_chunks(), first + bins.astype(np.int64), at)
                self.message_rows += len(bins)
                self.progress("reading messages", 0.3 * self.message_rows / total)
            first += len(occurrences)
            self.messages.append(message)
            self.corrections.append(correct_message(message, correction, occurrences))
        self._outputs.flush()

    def write(
        self, out: Path | TableAddress, *, unmatched: Path | None = None, force: bool = False, limits: Limits = SILENT
    ) -> Counts:
        """Write the feature file's columns with those of ADDED, in its order; rows of one id in that of the messages.

        `unmatched`: file for the unmatched ids, in columns example_id and missing_in (features or messages). Raises
        as `meet`; InvalidInput, InvalidFile as `writing`.
        """
        matches, lonely, counts = self.meet(limits)
        with nullcontext() if unmatched is None else _listing(unmatched, force=force) as list_ids:
            if list_ids is not None:
                self._list_lonely(lonely, list_ids)
            self._write(out, matches, list_ids, force=force)
        return counts

    def meet(self, limits: Limits) -> tuple[Ranges, Ranges, Counts]:
        """Return the matches of feature rows and outputs, and the message rows without features. Raises InvalidTable if
        no id matches or more ids of messages are unmatched than `limits` allow."""
        result = self._meet()
        if not result.matches.count:
            refuse_nothing_matched(self.message_rows, self.feature_rows, result.unmatched.reason)
        counts = Counts(
            messages=len(self.messages),
            message_rows=self.message_rows,
            feature_rows=self.feature_rows,
            matched=result.matches.count,
            message_ids_without_features=result.lonely.count,
            features_without_message=self.feature_rows - result.examples,
            ids_in_several_messages=result.repeated,
        )
        return result.matches, result.lonely, check_unmatched(counts, limits, result.unmatched.reason)

    def rows(
        self, matches: Ranges, columns: Sequence[str] | None = None
    ) -> Iterator[tuple[pa.Table, IntArray, IntArray]]:
        """Yield the features in their order, some 10⁵ rows at a time, with int64[·] the rows that matched, rising, and
        the index of the output of each."""
        start = 0
        for batch in ahead(self.features.batches(columns)):
            row, index = matches.up_to(start + batch.num_rows)
            yield batch, row - start, index
            start += batch.num_rows
            self.progress("writing", 0.4 + 0.6 * start / self.feature_rows)

    def _bits(self, size: int) -> int:
        return max(size // self.bucket_bytes, 0).bit_length()

    def _meet(self) -> _Matches:
        matches = Ranges(self.folder, "matches", self.feature_rows, self.message_rows)
        result = _Matches(matches, Ranges(self.folder, "lonely", self.message_rows, self.message_rows))
        finer = self._outputs.bits - self._ids.bits
        for number in range(1 << self._ids.bits):
            ids, (row,) = self._ids.read(number)
            part = self._ids.apart(ids, number, self._outputs.bits)
            for at in range(1 << finer):
                here = np.flatnonzero(part == at) if finer else slice(None)
                self._meet_bucket((number << finer) + at, ids.take(here) if finer else ids, row[here], result)
            self.progress("joining", 0.3 + 0.1 * number / (1 << self._ids.bits))
        return result

    def _meet_bucket(self, number: int, ids: pa.Array, row: IntArray, result: _Matches) -> None:
        """Match one bucket of outputs with its ids of features and their rows."""
        import pyarrow as pa

        others, (output, at) = self._outputs.read(number)
        # ids of features are distinct, so they get the first codes: larger ones have no features
        codes = pa.concat_arrays([ids, others]).dictionary_encode().indices.to_numpy()[len(ids) :]
        hits = codes < len(ids)
        result.matches.add(row[codes[hits]], output[hits])
        often = np.bincount(codes[hits], minlength=len(ids))
        result.examples += int(np.count_nonzero(often))
        result.repeated += int(np.count_nonzero(often > 1))
        result.unmatched.add_features(ids.filter(pa.array(often == 0)))
        lonely = np.flatnonzero(~hits)
        lonely = lonely[np.unique(codes[lonely], return_index=True)[1]]
        result.unmatched.add_messages(others.take(pa.array(lonely)))
        result.lonely.add(at[lonely], np.zeros(len(lonely), np.int64))

    def _write(self, out: Path | TableAddress, matches: Ranges, list_ids: Listed | None, *, force: bool) -> None:
        import pyarrow as pa

        labels = label_columns(self.messages, self.corrections)
        schema, properties = pa.schema([*self.features.schema, *labels.fields()]), _properties(self.messages)
        with writing(out, schema, force=force, properties=properties, spill=self.folder) as writer:
            for batch, rows, index in self.rows(matches):
                if list_ids is not None:
                    ids = canonical_ids(batch[self.features.id_column], self.features.id_column)
                    list_ids(ids.take(pa.array(np.delete(np.arange(len(ids)), rows))), "messages")
                if len(rows) != batch.num_rows or not np.array_equal(rows, np.arange(len(rows))):
                    batch = batch.take(pa.array(rows))
                for name, column in labels.columns(labels.message(index), index).items():
                    batch = batch.append_column(name, column)
                if batch.num_rows:
                    writer.write(batch)

    def _list_lonely(self, lonely: Ranges, list_ids: Listed) -> None:
        start = 0
        for message in self.messages:
            for part in message.batches():
                at, _ = lonely.up_to(start + part.num_rows)
                list_ids(part["example_id"].combine_chunks().take(at - start), "features")
                start += part.num_rows


def _properties(messages: Sequence[AcceptedMessage]) -> dict[str, str]:
    """Return what a commit says of its labels: the releases, the digests of their manifests, and the ε of each."""
    return {
        "label_dp.release": ",".join(message.release for message in messages),
        "label_dp.digest": ",".join(message.digest for message in messages),
        "label_dp.epsilon": ",".join(str(message.manifest.epsilon.total) for message in messages),
    }


@contextmanager
def _listing(path: Path, *, force: bool) -> Iterator[Listed]:
    """Yield a function that writes ids to `path`, with the side where they are missing."""
    import pyarrow as pa

    schema = pa.schema([("example_id", pa.string()), ("missing_in", pa.string())])
    with writing(path, schema, force=force) as writer:

        def write(ids: pa.Array, where: str) -> None:
            writer.write(pa.table([ids.cast(pa.string()), pa.array([where] * len(ids), pa.string())], schema=schema))

        yield write
