"""Boosters that the tasks of one barrier stage grow together: XGBoost with the parameters of the local trees.

What comes out is checked and written anew as any document of trees, so a model neither knows nor needs Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from features_party.spark.executor.encoding import Matrix, poisson_gradients
from features_party.training.capacity import Capacity
from features_party.training.learners.tree_document import checked_document
from features_party.training.learners.trees import Trees, load_booster, parameters_of
from features_party.training.links import PoissonScore
from features_party.training.threads import openmp_threads
from label_dp.spark.cluster import Cluster, mapped
from label_dp.spark.task import attempt, rows_of

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
        inputs, labels, weights = matrix.whole([row[0] for row in rows_of(batches)])
        context, terms = BarrierTaskContext.get(), dict[str, Any]()
        workers, number = context.getTaskInfos(), context.partitionId()
        if number == 0:
            tracker = RabitTracker(len(workers), workers[0].address.rpartition(":")[0], sortby="task")
            tracker.start()
            terms = {"arguments": tracker.worker_args(), "model_file": str(so_far) if so_far.exists() else None}
        terms = json.loads(context.allGather(json.dumps(terms))[0])
        with xgb.collective.CommunicatorContext(**terms["arguments"], dmlc_task_id=f"{number:06d}"):
            how = {"feature_types": matrix.kinds, "enable_categorical": "c" in matrix.kinds, "nthread": 1}
            data = xgb.QuantileDMatrix(inputs, labels, weight=weights, max_bin=settings["max_bin"], **how)
            del inputs
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


def grown(
    cluster: Cluster,
    matrix: Matrix,
    capacity: Capacity,
    mean: float,
    poisson: PoissonScore | None,
    workers: int,
    seed: int,
) -> Trees:
    """Trees for the squared loss, or `poisson`, on the rows of all files; each worker is one task and holds its rows.
    `seed`: of the rows and columns that a tree sees.

    Deterministic for a number of workers. Raises Unavailable."""
    settings = {"objective": "reg:squarederror", "base_score": mean if poisson is None else poisson.base()}
    settings |= {"max_delta_step": 0.0 if poisson is None else poisson.largest_step, "seed": seed, "nthread": 1}
    paths = matrix.looks.paths
    so_far = Path(paths[0]).with_name("so-far.ubj")
    task = cluster.hook(partial(grow, matrix, parameters_of(capacity) | settings, capacity.rounds, poisson, so_far))

    def stages(spark: SparkSession) -> DataFrame:
        numbers = spark.range(0, len(paths), 1, workers)
        # Spark starts a barrier stage again where another one follows
        return mapped(numbers, task, {"document": "binary"}, barrier=True).repartition(1)

    rows = cluster.collect(stages)
    codes = [0] * len(matrix.schema.number_names) + [size - 1 for size in matrix.schema.sizes]
    return Trees(load_booster(checked_document(json.loads(rows[0]["document"]), matrix.kinds, codes)), poisson)
