"""A batch from Parquet that Spark reads, sealed by its tasks: as any sealed batch, an object for each range of ids. Its
labels come as they are, or are folded from events on the way.

One action reads, sorts and writes. The driver compares its digests with other batches, moves the files that the
action named, and records them in the one transaction of every seal.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from label_dp.columnar.tables import require_columns
from label_dp.errors import Conflict, InvalidFile, InvalidInput, Unavailable
from label_dp.spark.cluster import PROBLEM, Cluster, mapped
from label_dp.spark.staging import staging
from labels_party.labels.at_rest import digest_key, event_keys
from labels_party.labels.batches import ID_LIST, PUBLIC, Batch, StaleBatch
from labels_party.labels.changes import delete
from labels_party.labels.comparison import UNKNOWN
from labels_party.labels.erased import count_blanked
from labels_party.labels.events.files import event_columns, member_names
from labels_party.labels.from_files import FileBatches
from labels_party.labels.runs import EMPTY, Run, sort_run
from labels_party.labels.seal import IncompleteLabels
from labels_party.labels.submission import has_times, has_units
from labels_party.labels.vault import read_run
from labels_party.ledger.populations import Population
from labels_party.spark.executor.arriving import BLOCK, SHOWN, WHERE, ArrivalRules, ArrivingRows, Locating
from labels_party.spark.executor.folding import FILE, ROW, Folding, counts_of
from labels_party.spark.executor.sealing import Sealing, object_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

RANGE_ROWS = 1 << 20  # of one sealed object, about; and of one part of a fold
MOST_RANGES, MOST_PARTS = 2000, 2048
FEWEST_EVENTS = 50_000  # of a part: fewer are not worth a task
ERASED = "A population with erased examples is sealed by the local engine: leave --engine spark out."
TWICE = "this id is in more than one row"
SAMPLED = 100  # ids looked at for each range
KINDS = re.compile(r"(string|varchar|char|tinyint|smallint|int|bigint)(\(\d+\))?")


Blocks = Callable[["SparkSession", bytes, npt.NDArray[np.bytes_]], "DataFrame"]  # under a key, for ranges of ids


@dataclass(frozen=True)
class ParquetSource:
    """Parquet under a path or URL of any store that Spark reads: a file, a folder, or a pattern."""

    url: str
    rules: ArrivalRules

    @property
    def columns(self) -> list[str]:
        return self.rules.columns

    def frame(self, spark: SparkSession) -> DataFrame:
        return spark.read.parquet(self.url).select(*(f"`{name}`" for name in self.columns))

    def placed(self, spark: SparkSession) -> DataFrame:
        """With the file and the row in it."""
        from pyspark.sql.functions import col

        where = col("_metadata.file_name").alias("file"), col("_metadata.row_index").alias("row")
        return spark.read.parquet(self.url).select(*(col(f"`{name}`") for name in self.columns), *where)


class SparkBatches:
    """`FileBatches` on a cluster, for populations without units and without erased examples."""

    def __init__(self, cluster: Cluster, files: FileBatches) -> None:
        self.cluster, self.files = cluster, files
        self.sealer = files.sealer

    def seal(
        self,
        population: Population,
        labels: tuple[str, str, str],
        examples: tuple[str, str] | None,
        actor: str,
        check: Callable[[int], None],
        progress: Callable[[str, float], None],
        id_prefix: str | None = None,
    ) -> str:
        """The id of the sealed batch. `labels`: where they are, their columns of ids and labels; or where events are,
        in a population with events. `examples`: where the list is, and its column. `check` as of `FileBatches`. Raises
        InvalidInput and its kinds, IncompleteLabels, OverlappingBatch, Conflict, Unavailable; then neither population,
        batch nor file is left."""
        if has_units(population):
            raise InvalidInput("A population with units is sealed by the local engine: leave --engine spark out.")
        if self.sealer.database.read("seal.erased", lambda c: count_blanked(c, population.id)):
            raise InvalidInput(ERASED)
        batch = self.files.batches.draft(population, PUBLIC if examples is None else ID_LIST, id_prefix)
        rules = (population.domain, population.out_of_domain, batch.id_prefix)
        sources: list[ParquetSource] = []
        if population.events is None:
            sources.append(ParquetSource(labels[0], ArrivalRules(labels[1], labels[2], *rules)))
        if examples is not None:
            listing = ArrivalRules(examples[1], None, *rules, timed=has_times(population))
            sources.append(ParquetSource(examples[0], listing))
        for source in sources:
            self._look(source)
        n = self._count(sources[-1])
        check(n)
        if population.events is None:
            blocks, files = self._arriving(sources), list[str]()
        else:
            blocks, files = self._folding(labels[0], population, sources[0], n)
        progress("sealing", 0.1)
        try:
            self._seal(batch, population, sources, n, blocks, files, actor)
        except StaleBatch as stale:
            raise Conflict(f"{stale.detail} Something else came meanwhile; try again.") from None
        return batch.id

    # --- the job ------------------------------------------------------------------------------------------

    def _arriving(self, sources: list[ParquetSource]) -> Blocks:
        """Blocks of rows as they come."""

        def blocks(spark: SparkSession, key: bytes, bounds: npt.NDArray[np.bytes_]) -> DataFrame:
            arriving = (self.cluster.hook(ArrivingRows(source.rules, key, bounds)) for source in sources)
            frames = [mapped(s.frame(spark), task, BLOCK) for s, task in zip(sources, arriving, strict=True)]
            return frames[0] if len(frames) == 1 else frames[0].unionAll(frames[1])

        return blocks

    def _folding(self, url: str, population: Population, listing: ParquetSource, n: int) -> tuple[Blocks, list[str]]:
        """Blocks of listed rows with the labels that events give, and the files of these in their order. Raises
        InvalidFile, InvalidEvents, Conflict."""
        rule, missing = population.events, population.missing_index
        assert rule is not None
        assert missing is not None  # a rule of events needs one
        sets, hook = self.sealer.events.sets_with(rule), self.cluster.hook
        names = event_columns(_arrow(self._schema(url), member_names(sets.values())), sets.values())
        rows, paths = self._files(url)
        files = {name: number for number, (_, name) in enumerate(paths)}
        parts = max(-(-max(rows, n) // RANGE_ROWS), min(self.cluster.parallelism, rows // FEWEST_EVENTS), 1)
        bits = (min(parts, MOST_PARTS) - 1).bit_length()
        keys, own = event_keys(self.sealer.secrets, rule.data_set_id), secrets.token_bytes(16)

        def blocks(spark: SparkSession, key: bytes, bounds: npt.NDArray[np.bytes_]) -> DataFrame:
            folding = Folding(rule, sets, names, keys, own, key, files, bits, listing.rules, missing, bounds)
            events = mapped(_events(spark, url, names), hook(folding.arrive), BLOCK).repartitionById(1 << bits, "part")
            examples = mapped(listing.frame(spark), hook(folding.enlist), BLOCK)
            effects = mapped(events, hook(folding.merge), BLOCK)
            return mapped(effects.unionAll(examples).repartitionById(1 << bits, "part"), hook(folding.fold), BLOCK)

        return blocks, [path for path, _ in paths]

    def _seal(
        self,
        batch: Batch,
        population: Population,
        given: list[ParquetSource],
        n: int,
        blocks: Blocks,
        files: list[str],
        actor: str,
    ) -> None:
        vault, digests = self.sealer.vault, digest_key(self.sealer.secrets, batch.label)
        key = vault.batch_key(f"{batch.id}/")
        with staging(vault.objects.room) as folder:
            bounds = self._bounds(given[-1], n)
            sealing = Sealing(key, digests, len(given) > 1, population.missing_index, str(folder), batch.id)

            def job(spark: SparkSession) -> DataFrame:
                ranges = blocks(spark, key, bounds).repartitionById(bounds.size + 1, "part")
                return mapped(ranges, self.cluster.hook(sealing), sealing.columns | PROBLEM)

            records = sorted(self.cluster.collect(job), key=lambda record: int(record["number"]))
            self._refuse(records, given, files, digests)
            if len({record["number"] for record in records}) != len(records):
                raise Unavailable("The cluster's action did not return every range of ids once.")
            counts = None
            if population.events is not None:
                counts = counts_of(b"".join(record["event_counts"] for record in records), key)
            records = [record for record in records if record["rows"]]
            paths = [folder / record["name"] for record in records]
            runs = [read_run(path.with_suffix(".run")) for path in paths]
            objects = [(object_name(batch.id, record["name"]), int(record["rows"])) for record in records]
            size = sum(int(record["id_bytes"]) for record in records)
            sealed = self.sealer.adopted(batch, population, objects, runs, size, counts)
            try:
                for (name, _), path in zip(objects, paths, strict=True):
                    vault.objects.adopt(name, path.with_suffix(".parquet"))
            except (OSError, Unavailable) as error:
                delete(vault, sealed.keys)
                why = error.strerror if isinstance(error, OSError) else error.detail
                raise Unavailable(f"The label store cannot be written ({why}); nothing was stored.") from None
            self.files.record(sealed, actor)

    def _refuse(
        self, records: list[dict[str, Any]], given: list[ParquetSource], files: list[str], digests: bytes
    ) -> None:
        """Raises InvalidRows' sentence for the first of what is wrong, with places where there are some. `files`: of
        events, in their order."""
        refused = sum(int(record["refused"]) for record in records)
        place = next((record["place"] for record in records if record["place"]), "")
        if place:
            where = json.loads(place)
            raise _refusal(refused, where | {"file": files[where["file"]].rpartition("/")[2]})
        if refused:
            raise self._placed(refused, given, digests, EMPTY, "")
        for name, rule in (("repeated", TWICE), ("unlisted", UNKNOWN), ("listed_again", TWICE)):
            total = sum(int(record[name]) for record in records)
            if total:
                halves = np.frombuffer(b"".join(record[f"{name}_digests"] for record in records), "<u8").reshape(-1, 2)
                wanted = sort_run(halves[:, 0].copy(), halves[:, 1].copy())[0]
                raise self._placed(total, given[name == "listed_again" :], digests, wanted, rule)
        missing = b"\n".join(record["missing_ids"] for record in records if record["missing"]).decode()
        if missing:
            raise IncompleteLabels(missing.split("\n")[:SHOWN])

    def _placed(self, total: int, given: list[ParquetSource], digests: bytes, wanted: Run, rule: str) -> InvalidInput:
        for source in given:
            task = self.cluster.hook(Locating(source.rules, digests, wanted, rule))

            def look(spark: SparkSession, source: ParquetSource = source, task: Any = task) -> DataFrame:
                return mapped(source.placed(spark), task, WHERE)

            places = self.cluster.collect(look)
            if places:
                return _refusal(total, min(places, key=lambda place: (place["file"], place["row"])))
        return InvalidFile(f"{total:,} rows are refused, and the files changed meanwhile. Nothing was stored.")

    # --- looking ------------------------------------------------------------------------------------------

    def _schema(self, url: str) -> StructType:
        """Raises InvalidFile."""
        try:
            schema: StructType = self.cluster.ask(lambda spark: spark.read.parquet(url).schema)
        except Unavailable:
            raise InvalidFile(f"'{url}' cannot be read by Spark as Parquet; its logs say why.") from None
        return schema

    def _look(self, source: ParquetSource) -> None:
        """Raises InvalidFile (unreadable), InvalidTable (a column is missing), InvalidInput."""
        schema = self._schema(source.url)
        require_columns(schema.names, source.columns, source.url)
        kind = schema[source.rules.id_field].dataType.simpleString()
        if not KINDS.fullmatch(kind):
            raise InvalidInput(
                f"The column '{source.rules.id_field}' must hold text or whole numbers; it holds {kind}."
            )

    def _files(self, url: str) -> tuple[int, list[tuple[str, int]]]:
        """The number of events, and the files that have some, by path, each with a hash of it. Raises InvalidFile."""

        def look(spark: SparkSession) -> DataFrame:
            paths = spark.read.parquet(url).selectExpr("_metadata.file_path as path")
            return paths.selectExpr("count(*) as rows", "collect_set(struct(path, xxhash64(path) as hash)) as files")

        (record,) = self.cluster.collect(look)
        if not record["rows"]:
            raise InvalidFile(f"There is no event in '{url}'.")
        files = sorted((str(file["path"]), int(file["hash"])) for file in record["files"])
        if len({name for _, name in files}) < len(files):
            raise InvalidFile(f"Two of the files of '{url}' have paths of one hash; rename one of them.")
        return int(record["rows"]), files

    def _count(self, source: ParquetSource) -> int:
        def rows(spark: SparkSession) -> DataFrame:
            return source.frame(spark).selectExpr("count(*) as rows")

        n = int(self.cluster.collect(rows)[0]["rows"])
        if not n:
            raise InvalidFile(f"There is no row in '{source.url}'; send at least one.")
        return n

    def _bounds(self, source: ParquetSource, n: int) -> npt.NDArray[np.bytes_]:
        """bytes[ranges − 1], rising: where the ranges of ids begin, from a sample of ids, which are public."""
        ranges = min(max(-(-n // RANGE_ROWS), min(self.cluster.parallelism, n // 1000)), MOST_RANGES)
        if ranges < 2:
            return np.zeros(0, "S1")
        share = min(1.0, SAMPLED * ranges / n)

        def some(spark: SparkSession) -> DataFrame:
            return source.frame(spark).sample(share).selectExpr(f"cast(`{source.rules.id_field}` as string) as id")

        ids = np.array(sorted(row["id"].encode() for row in self.cluster.collect(some) if row["id"]), "S")
        if not ids.size:
            return np.zeros(0, "S1")
        return np.unique(ids[np.arange(1, ranges) * ids.size // ranges])


def _events(spark: SparkSession, url: str, names: Iterable[str]) -> DataFrame:
    """Members of events, in this order, with a hash of the file and the row in it."""
    from pyspark.sql.functions import col, xxhash64

    def path(name: str) -> str:
        return ".".join("`{}`".format(part.replace("`", "``")) for part in name.split("."))

    members = [col(path(name)).alias(f"member_{i}") for i, name in enumerate(names)]
    places = xxhash64(col("_metadata.file_path")).alias(FILE), col("_metadata.row_index").alias(ROW)
    return spark.read.parquet(url).select(*members, *places)


def _arrow(schema: StructType, names: Iterable[str]) -> pa.Schema:
    """The columns that hold members of these names, as Arrow has them."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    tops = {name.split(".")[0] for name in names}
    return to_arrow_schema(StructType([field for field in schema.fields if field.name in tops]))


def _refusal(rows: int, first: Mapping[str, Any]) -> InvalidFile:
    some = "One row is" if rows == 1 else f"{rows:,} rows are"
    where = f"row {first['row'] + 1} of '{first['file']}', field '{first['field']}': {first['rule']}"
    return InvalidFile(f"{some} refused, for instance {where}. Nothing was stored.")


__all__ = ["SparkBatches"]
