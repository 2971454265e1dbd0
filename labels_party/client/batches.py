"""Calls on populations, batches and labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from label_dp.cli.output import progress as bar
from label_dp.client import labels_paths as at
from label_dp.client.asking import asks, members
from label_dp.client.conversation import Conversation, Json, Request, ask, delete, entries, get, path, post
from label_dp.client.declared import call
from label_dp.client.tables import as_arrow, as_lines, as_parquet, renamed
from label_dp.columnar.frames import as_table, chunked, is_frame, length
from label_dp.errors import InvalidFile, RemoteProblem
from label_dp.schemas.filters import PopulationFilter
from label_dp.schemas.population import Batch, Population, Schedule

if TYPE_CHECKING:
    import pyarrow as pa

    from label_dp.columnar.frames import Frame, Frames

OBJECTS_AT_ONCE, ROWS_AT_ONCE = 5_000, 100_000  # events of a request: a few MiB
Told = Callable[[int, int | None], None]  # rows sent, and rows in total if known


def _declared_unit(batch: str, table: pa.Table, others: set[str]) -> Conversation[str | None]:
    """Return the unit column that the batch's population declares, if the table has it; None for keys that may only
    send labels."""
    if not others < set(table.column_names):  # no further column, or one is missing
        return None
    try:
        owner = (yield from get(at.BATCH, batch))["population"]
        column: str | None = (yield from get(at.POPULATION, owner))["unit"]["column"]
    except RemoteProblem:
        return None
    return column if column in table.column_names else None


def _event_requests(events: Iterable[Json] | Frames | Path | str, chunk_rows: int) -> Iterator[Request]:
    """Yield the requests that send events: objects as JSON, tables as Parquet. Raises InvalidFile, InvalidTable."""
    where = path(at.EVENTS)
    frames: Any = _file_batches(Path(events), chunk_rows) if isinstance(events, str | Path) else events
    if not is_frame(frames):
        rows = iter(frames)
        first = list(islice(rows, 1))
        frames = chain(first, rows)
        if first and isinstance(first[0], Mapping):
            while objects := list(islice(frames, min(chunk_rows, OBJECTS_AT_ONCE))):
                yield as_lines("POST", where, objects)
            return
    for table in chunked(frames, min(chunk_rows, ROWS_AT_ONCE)):
        yield as_parquet("POST", where, table)


def _file_batches(file: Path, chunk_rows: int) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file, pre_buffer=False) as parquet:
            yield from parquet.iter_batches(min(chunk_rows, ROWS_AT_ONCE))
    except (pa.ArrowException, OSError):  # texts of the former quote cells
        raise InvalidFile(f"'{file}' cannot be read as a Parquet file.") from None


class BatchCalls:
    """Calls of the owner and of ingest keys."""

    chunk_rows: int

    @asks(Population)
    def create_population(self, asked: Population) -> Conversation[Json]:
        """Declare a population, once."""
        return post(at.POPULATIONS, body=members(asked))

    @asks(Population)
    def ensure_population(self, asked: Population) -> Conversation[Json]:
        """Declare a population, or return it if it was declared with the same rules: daily jobs can begin with it.
        Raises RemoteProblem, which names the rules that differ."""
        where, body = path(at.POPULATIONS), members(asked)
        return ask(Request("POST", where, body=body, params={"existing": "same"}))

    @asks(PopulationFilter)
    def populations(self, population_filter: PopulationFilter) -> Conversation[list[Json]]:
        """List all populations, or those that fit."""
        return entries(at.POPULATIONS, **members(population_filter))

    @call
    def population(self, name: str) -> Conversation[Json]:
        """Return a population by name or id."""
        return get(at.POPULATION, name)

    @asks(Batch)
    def open_batch(self, population: str, asked: Batch) -> Conversation[Json]:
        """Open a batch. At `seal_at` it is sealed and released as the template `release` says."""
        return post(at.BATCHES_OF, population, body=members(asked))

    @call
    def batches(self, population: str) -> Conversation[list[Json]]:
        """List the batches of a population."""
        return entries(at.BATCHES_OF, population)

    @call
    def batch(self, batch: str) -> Conversation[Json]:
        """Return a batch: state, examples, schedule."""
        return get(at.BATCH, batch)

    @call
    def discard(self, batch: str) -> Conversation[None]:
        """Delete an open batch with everything in it."""
        return delete(at.BATCH, batch)

    @asks(Schedule)
    def reschedule(self, batch: str, asked: Schedule) -> Conversation[Json]:
        """Move or (None) remove the end of an open batch's conversion window and the release that follows it."""
        return ask(Request("PATCH", path(at.BATCH, batch), body=members(asked)))

    @call
    def put_examples(
        self,
        batch: str,
        examples: Frame,
        *,
        id_column: str = "example_id",
        unit_column: str | None = None,
        time_column: str | None = None,
    ) -> Conversation[Json]:
        """Declare all of the batch's ids at once, before any label. `unit_column`: for keys that may read batches, by
        default the one that the population declares. `time_column`: Unix seconds, where events count from them."""
        table = as_table(examples)
        unit = unit_column or (yield from _declared_unit(batch, table, {id_column}))
        table = renamed(table, {"example_id": id_column, "unit": unit, "time": time_column})
        return (yield from ask(as_arrow("PUT", path(at.EXAMPLES, batch), table)))

    @call
    def add_labels(
        self,
        batch: str,
        labels: Frames,
        *,
        id_column: str = "example_id",
        label_column: str = "label",
        unit_column: str | None = None,
        mode: Literal["insert", "upsert"] = "insert",
        progress: bool | Told = False,
    ) -> Conversation[int]:
        """Send labels in chunks, each stored as a whole or not at all; return how many were accepted.

        `unit_column` as in `put_examples`.

        `mode="upsert"`: a later record replaces an earlier one, a null label deletes it. `progress` True: a bar on a
        terminal, occasional lines if piped; a function is called with (rows sent, rows in total or None).
        """
        count, total = 0, length(labels)
        columns = {"example_id": id_column, "label": label_column, "unit": unit_column}
        with bar("sending labels", quiet=progress is not True) as report:
            for chunk in chunked(labels, self.chunk_rows):
                if not count and unit_column is None:
                    columns["unit"] = yield from _declared_unit(batch, as_table(chunk), {id_column, label_column})
                table = renamed(chunk, columns)
                where, given = path(at.LABELS, batch), None if mode == "insert" else mode
                answer = yield from ask(as_arrow("POST", where, table, mode=given))
                count += int(answer["accepted"])
                report(f"{count:,} rows", count / total if total else 0.0)
                if callable(progress):
                    progress(count, total)
        return count

    @call
    def send_events(
        self, events: Iterable[Json] | Frames | Path | str, *, progress: bool | Told = False
    ) -> Conversation[int]:
        """Send events of the Event & Conversion API in chunks, each stored as a whole or not at all; return how many
        were accepted. They are core event objects, or a table with their members as columns (nested ones in struct
        columns), or the path of a Parquet file of such a table. `progress` as in `add_labels`."""
        count, total = 0, length(events)
        with bar("sending events", quiet=progress is not True) as report:
            for request in _event_requests(events, self.chunk_rows):
                answer = yield from ask(request)
                count += int(answer["accepted"])
                report(f"{count:,} events", count / total if total else 0.0)
                if callable(progress):
                    progress(count, total)
        return count

    @call
    def event_counts(self, batch: str) -> Conversation[Json]:
        """Return what became of the events of a sealed batch, by rule; for its owner, since it is made of labels."""
        return get(at.EVENT_COUNTS, batch)

    @call
    def delete_labels(self, batch: str, examples: Frame, *, id_column: str = "example_id") -> Conversation[Json]:
        """Delete the labels of these ids (refunds); the ids stay in the batch."""
        return ask(as_arrow("DELETE", path(at.LABELS, batch), renamed(examples, {"example_id": id_column})))

    @call
    def set_aside(self, batch: str) -> Conversation[list[Json]]:
        """List uploads of ingest keys that repeat an id of an earlier upload and wait for the owner's decision."""
        return entries(at.SET_ASIDE, batch)

    @call
    def decide(self, batch: str, upload: str, decision: Literal["drop", "replace"]) -> Conversation[Json]:
        """Drop an upload that is set aside (`drop`), or let it replace earlier labels (`replace`)."""
        return post(at.UPLOAD_SET_ASIDE, batch, upload, body={"decision": decision})

    @call
    def seal(self, batch: str) -> Conversation[Json]:
        """Seal a batch: check ids, units and missing labels; its labels cannot change afterwards."""
        return post(at.SEAL, batch)

    @call
    def purge(self, batch: str) -> Conversation[Json]:
        """Delete the labels of a batch for ever; ledger, digests and messages stay."""
        return post(at.PURGE, batch)
