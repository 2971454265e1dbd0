"""A batch from Parquet that Spark reads, sealed by its tasks: as any sealed batch, an object for each range of ids.

One action reads, sorts and writes. The driver compares its digests with other batches, moves the files that the
action named, and records them in the one transaction of every seal.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from label_dp.columnar.tables import require_columns
from label_dp.errors import Conflict, InvalidFile, InvalidInput, Unavailable
from label_dp.spark.cluster import PROBLEM, Cluster, mapped
from label_dp.spark.staging import staging
from labels_party.labels.at_rest import digest_key
from labels_party.labels.batches import ID_LIST, PUBLIC, Batch, StaleBatch
from labels_party.labels.changes import delete
from labels_party.labels.comparison import UNKNOWN
from labels_party.labels.erased import count_blanked
from labels_party.labels.from_files import FileBatches
from labels_party.labels.runs import EMPTY, Run, sort_run
from labels_party.labels.seal import IncompleteLabels
from labels_party.labels.submission import has_units
from labels_party.labels.vault import read_run
from labels_party.ledger.populations import Population
from labels_party.spark.executor.arriving import BLOCK, ArrivalRules, ArrivingRows
from labels_party.spark.executor.locating import PLACE, SHOWN, Locating
from labels_party.spark.executor.sealing import Sealing, object_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RANGE_ROWS = 1 << 20  # of one sealed object, about
MOST_RANGES = 2000
ERASED = "A population with erased examples is sealed by the local engine: leave --engine spark out."
TWICE = "this id is in more than one row"
SAMPLED = 100  # ids looked at for each range
KINDS = re.compile(r"(string|varchar|char|tinyint|smallint|int|bigint)(\(\d+\))?")


@dataclass(frozen=True)
class ParquetSource:
    """Parquet under a path or URL of any store that Spark reads: a file, a folder, or a pattern."""

    url: str
    rules: ArrivalRules

    @property
    def columns(self) -> list[str]:
        return [self.rules.id_field, *([] if self.rules.label_field is None else [self.rules.label_field])]

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
        """The id of the sealed batch. `labels`: where they are, their columns of ids and labels; `examples`: where the
        list is, and its column. `check` as of `FileBatches`. Raises InvalidInput and its kinds, IncompleteLabels,
        OverlappingBatch, Conflict, Unavailable; then neither population, batch nor file is left."""
        if has_units(population):
            raise InvalidInput("A population with units is sealed by the local engine: leave --engine spark out.")
        if self.sealer.database.read("seal.erased", lambda c: count_blanked(c, population.id)):
            raise InvalidInput(ERASED)
        batch = self.files.batches.draft(population, PUBLIC if examples is None else ID_LIST, id_prefix)
        rules = (population.domain, population.out_of_domain, batch.id_prefix)
        sources = [ParquetSource(labels[0], ArrivalRules(labels[1], labels[2], *rules))]
        if examples is not None:
            sources.append(ParquetSource(examples[0], ArrivalRules(examples[1], None, *rules)))
        for source in sources:
            self._look(source)
        n = self._count(sources[-1])
        check(n)
        progress("sealing", 0.1)
        try:
            self._seal(batch, population, sources, n, actor)
        except StaleBatch as stale:
            raise Conflict(f"{stale.detail} Something else came meanwhile; try again.") from None
        return batch.id

    # --- the job ------------------------------------------------------------------------------------------

    def _seal(self, batch: Batch, population: Population, given: list[ParquetSource], n: int, actor: str) -> None:
        vault, digests = self.sealer.vault, digest_key(self.sealer.secrets, batch.label)
        key = vault.batch_key(f"{batch.id}/")
        with staging(vault.files.root) as folder:
            bounds = self._bounds(given[-1], n)
            sealing = Sealing(key, digests, len(given) > 1, population.missing_index, str(folder), batch.id)

            def job(spark: SparkSession) -> DataFrame:
                arriving = (self.cluster.hook(ArrivingRows(source.rules, key, bounds)) for source in given)
                blocks = [mapped(s.frame(spark), task, BLOCK) for s, task in zip(given, arriving, strict=True)]
                together = blocks[0] if len(blocks) == 1 else blocks[0].unionAll(blocks[1])
                ranges = together.repartitionById(bounds.size + 1, "part")
                return mapped(ranges, self.cluster.hook(sealing), sealing.columns | PROBLEM)

            records = sorted(self.cluster.collect(job), key=lambda record: int(record["number"]))
            self._refuse(records, given, digests)
            if len({record["number"] for record in records}) != len(records):
                raise Unavailable("The cluster's action did not return every range of ids once.")
            paths = [folder / record["name"] for record in records]
            runs = [read_run(path.with_suffix(".run")) for path in paths]
            objects = [(object_name(batch.id, record["name"]), int(record["rows"])) for record in records]
            size = sum(int(record["id_bytes"]) for record in records)
            sealed = self.sealer.adopted(batch, population, objects, runs, size)
            try:
                for (name, _), path in zip(objects, paths, strict=True):
                    vault.files.adopt(name, path.with_suffix(".parquet"))
            except OSError as error:
                delete(vault, sealed.keys)
                raise Unavailable(
                    f"The label store cannot be written ({error.strerror}); nothing was stored."
                ) from None
            self.files.record(sealed, actor)

    def _refuse(self, records: list[dict[str, Any]], given: list[ParquetSource], digests: bytes) -> None:
        """Raises InvalidRows' sentence for the first of what is wrong, with places where there are some."""
        refused = sum(int(record["refused"]) for record in records)
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
                return mapped(source.placed(spark), task, PLACE)

            places = self.cluster.collect(look)
            if places:
                first = min(places, key=lambda place: (place["file"], place["row"]))
                rows = "One row is" if total == 1 else f"{total:,} rows are"
                where = f"row {first['row'] + 1} of '{first['file']}', field '{first['field']}': {first['rule']}"
                return InvalidFile(f"{rows} refused, for instance {where}. Nothing was stored.")
        return InvalidFile(f"{total:,} rows are refused, and the files changed meanwhile. Nothing was stored.")

    # --- looking ------------------------------------------------------------------------------------------

    def _look(self, source: ParquetSource) -> None:
        """Raises InvalidFile (unreadable), InvalidTable (a column is missing), InvalidInput."""
        try:
            schema = self.cluster.ask(lambda spark: spark.read.parquet(source.url).schema)
        except Unavailable:
            raise InvalidFile(f"'{source.url}' cannot be read by Spark as Parquet; its logs say why.") from None
        require_columns(schema.names, source.columns, source.url)
        kind = schema[source.rules.id_field].dataType.simpleString()
        if not KINDS.fullmatch(kind):
            raise InvalidInput(
                f"The column '{source.rules.id_field}' must hold text or whole numbers; it holds {kind}."
            )

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


__all__ = ["SparkBatches"]
