"""A training's work on the files of a join, in this process or on Spark, where the tasks of one barrier stage grow one
booster together. What they return is checked and written anew as any document of trees, so a model needs no Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from features_party.spark.executor.encoding import Matrix, poisson_gradients
from features_party.spark.executor.meeting import FIRST
from features_party.training.capacity import Capacity
from features_party.training.column_cells import categories, holds_of
from features_party.training.encoding import MAX_VOCABULARY, Counted
from features_party.training.learner import Task
from features_party.training.learners.tree_document import checked_document
from features_party.training.learners.trees import Trees, boosted, load_booster, parameters_of
from features_party.training.links import PoissonScore
from features_party.training.threads import openmp_threads
from label_dp.errors import InvalidTable
from label_dp.progress import Progress
from label_dp.spark.cluster import Cluster, mapped
from label_dp.spark.task import SparkTask, attempt, rows_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

EVERY = 25  # trees after which a training that loses a worker need not begin again


def grow(
    matrix: Matrix, settings: dict[str, Any], rounds: int, poisson: PoissonScore | None, so_far: Path, batches: Any
) -> Iterator[pa.RecordBatch]:
    """Grow trees with the other workers, on the rows of the files that `batches` number. The first worker returns the
    document, and writes it to `so_far` now and then: tasks that start again go on from there. Raises TaskFailed."""
    openmp_threads(1)  # before it is loaded
    import pyarrow as pa
    import xgboost as xgb
    from pyspark import BarrierTaskContext
    from xgboost.tracker import RabitTracker

    with attempt():
        numbers = [row[0] for row in rows_of(batches)]
        context, terms = BarrierTaskContext.get(), dict[str, Any]()
        workers, number = context.getTaskInfos(), context.partitionId()
        if number == 0:
            tracker = RabitTracker(len(workers), workers[0].address.rpartition(":")[0], sortby="task")
            tracker.start()
            terms = {"arguments": tracker.worker_args(), "model_file": str(so_far) if so_far.exists() else None}
        terms = json.loads(context.allGather(json.dumps(terms))[0])
        with xgb.collective.CommunicatorContext(**terms["arguments"], dmlc_task_id=f"{number:06d}"):
            data = matrix.binned(numbers, 1, settings["max_bin"])
            booster = xgb.Booster(settings, [data], terms["model_file"])
            for tree in range(booster.num_boosted_rounds(), rounds):
                booster.update(data, tree, None if poisson is None else partial(poisson_gradients, poisson))
                if number == 0 and (tree + 1) % EVERY == 0:
                    aside = so_far.with_suffix(".new.ubj")
                    booster.save_model(aside)
                    aside.replace(so_far)
        if number == 0:
            tracker.wait_for()
            yield pa.record_batch({"document": [bytes(booster.save_raw("json"))]})


@dataclass(frozen=True)
class Here:
    """Training by `threads` of this process."""

    threads: int
    engine = "disk"
    how = "from files"

    def pieces(self, task: SparkTask, count: int) -> list[dict[str, Any]]:
        """Return the records of the files 0 … count − 1."""
        return [task.one(number) for number in range(count)]

    def counted(self, paths: Sequence[Path], types: Mapping[str, pa.DataType], name: str) -> Counted:
        """Count the values of a category, as `FeatureSchema.of_columns` asks."""
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        counts = []
        for path in paths:
            rows = pq.read_table(path, columns=[name, FIRST], partitioning=None)
            cells = categories(rows.filter(rows[FIRST])[name], name, holds_of(types[name], name)).drop_null()
            counts.append(pa.Table.from_struct_array(pc.value_counts(cells)))
        values = pa.concat_tables(counts).group_by("values").aggregate([("counts", "sum")])
        most = values.sort_by([("counts_sum", "descending"), ("values", "ascending")]).slice(0, MAX_VOCABULARY)
        return values.num_rows, most["values"].to_pylist()

    def trees(
        self, matrix: Matrix, capacity: Capacity, own: dict[str, Any], poisson: PoissonScore | None, progress: Progress
    ) -> Trees:
        """Grow trees for the squared loss, or `poisson`; `own`: XGBoost's settings beside those of the capacity."""
        threads = openmp_threads(self.threads)  # before it is loaded
        data = matrix.binned(list(range(len(matrix.looks.paths))), threads, capacity.max_bins)
        gradients = None if poisson is None else partial(poisson_gradients, poisson)
        task = Task(matrix.schema.sizes, "squared", (0.0, 0.0), capacity, threads)
        return Trees(boosted(data, task, capacity, own, gradients, progress), poisson)


@dataclass(frozen=True)
class OnSpark:
    """Training on the workers of a cluster, each on the rows of its files. A model of one number of workers is the same
    each time. Methods raise Unavailable."""

    cluster: Cluster
    engine = "spark"
    how = "on Spark, by workers on the rows of their files"

    def pieces(self, task: SparkTask, count: int) -> list[dict[str, Any]]:
        """Return the records of the files 0 … count − 1."""
        return self.cluster.pieces(task, count)

    def counted(self, paths: Sequence[Path], types: Mapping[str, pa.DataType], name: str) -> Counted:
        """Count the values of a category as `FeatureSchema.of_columns` asks. Raises InvalidTable for numbers and
        times, which Spark spells in its own way."""
        if holds_of(types[name], name) in ("number", "time", "zoned time"):
            raise InvalidTable(
                f"On Spark a category holds text, whole numbers, booleans or dates, and the column '{name}' holds "
                f"{types[name]}; store it as one of these, or leave --engine spark out."
            )
        parts = self.cluster.parallelism

        def values(spark: SparkSession) -> DataFrame:
            from pyspark.sql.functions import col

            rows = spark.read.parquet(*(f"file://{path}" for path in paths)).where(FIRST)
            rows = rows.select(col(f"`{name}`").cast("string").alias("value")).where("value <> ''")
            return rows.repartition(4 * parts, "value").groupBy("value").count()

        count = self.cluster.collect(lambda spark: values(spark).selectExpr("count(*) as n"))[0]["n"]
        most = self.cluster.collect(
            lambda spark: values(spark).orderBy("count", "value", ascending=[False, True]).limit(MAX_VOCABULARY)
        )
        return int(count), [str(row["value"]) for row in most]

    def trees(
        self, matrix: Matrix, capacity: Capacity, own: dict[str, Any], poisson: PoissonScore | None, _: Progress
    ) -> Trees:
        """Grow trees for the squared loss, or `poisson`; `own`: XGBoost's settings beside those of the capacity."""
        paths = matrix.looks.paths
        settings, so_far = parameters_of(capacity) | own | {"nthread": 1}, Path(paths[0]).with_name("so-far.ubj")
        task = self.cluster.hook(partial(grow, matrix, settings, capacity.rounds, poisson, so_far))
        workers = min(self.cluster.parallelism, len(paths))

        def stages(spark: SparkSession) -> DataFrame:
            numbers = spark.range(0, len(paths), 1, workers)
            # Spark starts a barrier stage again where another one follows
            return mapped(numbers, task, {"document": "binary"}, barrier=True).repartition(1)

        rows = self.cluster.collect(stages)
        codes = [0] * len(matrix.schema.number_names) + [size - 1 for size in matrix.schema.sizes]
        return Trees(load_booster(checked_document(json.loads(rows[0]["document"]), matrix.kinds, codes)), poisson)
