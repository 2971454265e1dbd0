"""The join of feature files and messages of any size: what does not fit into memory is spilled inside the home.

DuckDB meets the ids alone: (id, row) of the features, (id, message, bin) of the messages. Its answer, sorted by row, is
merged with one more pass over the feature file, whose columns so never leave Arrow and keep their types.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from features_party.receive.accepted import AcceptedMessage
from features_party.tables.feature_files import FeatureFile
from features_party.tables.join import (
    Counts,
    correct_message,
    label_columns,
    refuse_nothing_matched,
    refuse_taken,
)
from features_party.tables.output import writing
from features_party.training.correction import Correction
from shared.errors import InvalidRows, InvalidTable, RowProblem, Unavailable
from shared.service.cli import Progress

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

INSERT_ROWS = 1 << 17
FETCH_ROWS = 1 << 16
IntArray = npt.NDArray[np.int64]
NONE = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))


@dataclass(frozen=True)
class JoinedFile:
    """What a join to a file found: its counts and, per message, the correction."""

    counts: Counts
    corrections: tuple[Correction, ...]


class SpilledJoin:
    """One join in a folder of its own. Use `open`, then `load_features`, `load_messages`, `write`, in this order."""

    def __init__(self, database: duckdb.DuckDBPyConnection, features: FeatureFile, progress: Progress) -> None:
        self._db, self._features, self._progress = database, features, progress
        self._messages: list[AcceptedMessage] = []
        self._corrections: list[Correction] = []
        self.feature_rows = self.message_rows = 0

    @classmethod
    @contextmanager
    def open(
        cls, features: FeatureFile, folder: Path, progress: Progress, *, memory_mb: int, threads: int
    ) -> Iterator[SpilledJoin]:
        """`folder` is made and, at the end, removed. Raises Unavailable where the disk has no room for it."""
        import duckdb

        refuse_taken(features.schema.names)
        try:
            folder.mkdir(parents=True, mode=0o700)
            config: dict[str, str | bool | int | float | list[str]] = {
                "memory_limit": f"{memory_mb}MB",
                "threads": threads,
                "temp_directory": str(folder),
                "preserve_insertion_order": "false",
            }
            with duckdb.connect(config=config) as database:
                database.execute("CREATE TABLE features (id VARCHAR, row BIGINT)")
                database.execute("CREATE TABLE labels (id VARCHAR, message INTEGER, bin INTEGER)")
                yield cls(database, features, progress)
        except duckdb.OutOfMemoryException:
            raise Unavailable(
                f"The join needs more than {memory_mb} MiB of memory or more disk than '{folder.parent}' has; raise "
                "FEATURES_PARTY_MEMORY_LIMIT_MB or make room there."
            ) from None
        except (duckdb.IOException, OSError):
            raise Unavailable(f"The join cannot spill into '{folder.parent}'; make room there.") from None
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def load_features(self) -> None:
        """Take in the ids of the features. Raises InvalidRows (bad or repeated ids), InvalidTable (no rows)."""
        with self._inserting("features") as insert:
            for ids in self._features.ids():
                rows = np.arange(self.feature_rows, self.feature_rows + len(ids))
                insert({"id": ids, "row": rows})
                self.feature_rows += len(ids)
                self._progress(f"reading ids, {self.feature_rows:,} rows", 0.0)
        if not self.feature_rows:
            raise InvalidTable(f"'{self._features.path}' has a header but no rows.")
        repeated = "SELECT max(row) AS row FROM features GROUP BY id HAVING count(*) > 1 ORDER BY row"
        found = self._db.execute(repeated + f" LIMIT {InvalidRows.shown}").fetchall()
        if found:
            rule = "this id occurred in an earlier row"
            raise InvalidRows([RowProblem(row, self._features.id_column, rule) for (row,) in found], len(found))

    def load_messages(self, messages: list[AcceptedMessage], correction: str) -> None:
        """Take in the rows of accepted messages, each with its own correction. Raises MalformedManifest,
        InvalidMechanism (`debias` asked for where there is none)."""
        total = sum(message.manifest.n for message in messages)
        for number, message in enumerate(messages):
            occurrences = np.zeros(message.manifest.read_channel().m, dtype=np.int64)
            with self._inserting("labels") as insert:
                for part in message.batches():
                    bins = part["bin"].to_numpy()
                    occurrences += np.bincount(bins, minlength=len(occurrences))
                    insert(
                        {
                            "id": part["example_id"],
                            "message": np.full(len(bins), number, np.int32),
                            "bin": bins.astype(np.int32),
                        }
                    )
                    self.message_rows += len(bins)
                    self._progress("reading messages", 0.3 * self.message_rows / total)
            self._messages.append(message)
            self._corrections.append(correct_message(message, correction, occurrences))

    def write(self, out: Path, *, unmatched: Path | None = None, force: bool = False) -> JoinedFile:
        """Write the feature file's columns with those of ADDED, in its order; rows of one id in that of the messages.

        Raises InvalidTable where no id at all meets, InvalidInput, InvalidFile as `writing`.
        """
        import pyarrow as pa

        labels = label_columns(self._messages, self._corrections)
        matches = _Matches(self._db)
        if not matches.any:
            refuse_nothing_matched(self.message_rows, self.feature_rows)
        start = 0
        with writing(out, pa.schema([*self._features.schema, *labels.fields()]), force=force) as writer:
            for batch in self._features.batches():
                row, message, bins = matches.up_to(start + batch.num_rows)
                rows, start = row - start, start + batch.num_rows
                if len(rows) != batch.num_rows or not np.array_equal(rows, np.arange(len(rows))):
                    batch = batch.take(pa.array(rows))
                for name, column in labels.columns(message, labels.index(message, bins)).items():
                    batch = batch.append_column(name, column)
                if batch.num_rows:
                    writer.write(batch)
                self._progress("writing", 0.4 + 0.6 * start / self.feature_rows)
        return JoinedFile(self._counts(matches), tuple(self._corrections))

    def list_unmatched(self, path: Path, *, force: bool = False) -> None:
        """Write the ids that did not meet: columns example_id and missing_in (features or messages)."""
        import pyarrow as pa

        schema = pa.schema([("example_id", pa.string()), ("missing_in", pa.string())])
        sides = (("labels", "features", "features"), ("features", "labels", "messages"))
        with writing(path, schema, force=force) as writer:
            for there, absent, where in sides:
                sql = f"SELECT DISTINCT id FROM {there} ANTI JOIN {absent} USING (id) ORDER BY id"  # noqa: S608 - constants only
                for batch in _stream(self._db, sql):
                    ids = batch.column(0).cast(pa.string())
                    writer.write(pa.table([ids, pa.array([where] * len(ids), pa.string())], schema=schema))

    def _counts(self, matches: _Matches) -> Counts:
        lonely = self.message_rows - matches.rows
        if len(self._messages) > 1 and lonely:  # an id may be in several of them
            sql = "SELECT count(DISTINCT id) FROM labels ANTI JOIN features USING (id)"
            lonely = cast("tuple[int]", self._db.execute(sql).fetchone())[0]
        return Counts(
            messages=len(self._messages),
            message_rows=self.message_rows,
            feature_rows=self.feature_rows,
            matched=matches.rows,
            message_ids_without_features=lonely,
            features_without_message=self.feature_rows - matches.examples,
            ids_in_several_messages=matches.repeated,
        )

    @contextmanager
    def _inserting(self, table: str) -> Iterator[Callable[[dict[str, Any]], None]]:
        """A function that takes columns of `table`, collected so that each insertion is worth its while."""
        import pyarrow as pa

        waiting: list[pa.Table] = []

        def flush() -> None:
            if waiting:
                self._db.register("waiting", pa.concat_tables(waiting))
                self._db.execute(f"INSERT INTO {table} SELECT * FROM waiting")  # noqa: S608 - constants only
                self._db.unregister("waiting")
                waiting.clear()

        def insert(columns: dict[str, Any]) -> None:
            part = pa.table(columns)
            waiting.append(part.set_column(0, "id", part["id"].cast(pa.large_string())))
            if sum(p.num_rows for p in waiting) >= INSERT_ROWS:
                flush()

        self._db.execute("BEGIN")
        yield insert
        flush()
        self._db.execute("COMMIT")


def _stream(database: duckdb.DuckDBPyConnection, sql: str) -> Any:
    """The answer in Arrow batches, on a connection of its own: others may be asked while it is read."""
    return cast(Any, database.cursor().sql(sql)).to_arrow_reader(FETCH_ROWS)


class _Matches:
    """The rows that met, sorted by feature row and message; read once, in pieces."""

    def __init__(self, database: duckdb.DuckDBPyConnection) -> None:
        sql = "SELECT f.row, l.message, l.bin FROM labels l JOIN features f USING (id) ORDER BY f.row, l.message"
        self._reader = iter(_stream(database, sql))
        self._waiting: list[tuple[IntArray, IntArray, IntArray]] = []
        self.rows = self.examples = self.repeated = 0
        self.any = self._fetch()

    def up_to(self, stop: int) -> tuple[IntArray, IntArray, IntArray]:
        """(row, message, bin) int64[·] of the next rows below `stop`; call it with rising stops."""
        while (not self._waiting or self._waiting[-1][0][-1] < stop) and self._fetch():
            pass
        found = tuple(np.concatenate(column) for column in zip(*self._waiting, strict=True)) if self._waiting else NONE
        at = int(np.searchsorted(found[0], stop))
        rest = tuple(column[at:] for column in found)
        self._waiting = [cast(Any, rest)] if len(rest[0]) else []
        row = found[0][:at]
        first = np.flatnonzero(np.diff(row, prepend=-1))
        self.rows += len(row)
        self.examples += len(first)
        self.repeated += int(np.count_nonzero(np.diff(first, append=len(row)) > 1))
        return row, found[1][:at], found[2][:at]

    def _fetch(self) -> bool:
        for batch in self._reader:
            if batch.num_rows:
                row, message, bins = (np.asarray(column.to_numpy(), np.int64) for column in batch.columns)
                self._waiting.append((row, message, bins))
                return True
        return False
