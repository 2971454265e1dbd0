"""Boosters that a cluster grows: XGBoost's estimator for Spark with the parameters of the local trees.

What comes out is checked and written anew as any document of trees, so a model neither knows nor needs Spark.
"""

from __future__ import annotations

import json
import logging
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from features_party.spark.executor.encoding import LABEL, WEIGHT, Matrix, poisson_gradients
from features_party.training.capacity import Capacity
from features_party.training.learners.tree_document import checked_document
from features_party.training.learners.trees import Trees, load_booster, parameters_of
from features_party.training.links import PoissonScore
from label_dp.errors import InvalidSettings
from label_dp.installing import pip_install
from label_dp.spark.cluster import Cluster, mapped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def require_estimator() -> None:
    """Raise InvalidSettings if the estimator is missing."""
    if find_spec("sklearn") is None:
        raise InvalidSettings(f"Training on Spark needs scikit-learn: {pip_install('spark')}.")


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
    from xgboost.spark import SparkXGBRegressor

    for name in ("XGBoost-PySpark", "SparkXGBRegressor"):
        logging.getLogger(name).setLevel(logging.ERROR)
    more: dict[str, Any] = {} if poisson is None else {"obj": partial(poisson_gradients, poisson)}
    estimator = SparkXGBRegressor(
        features_col=[name for name in matrix.columns if name not in (LABEL, WEIGHT)],
        label_col=LABEL,
        weight_col=WEIGHT if matrix.levels.size else None,
        num_workers=workers,
        n_estimators=capacity.rounds,
        feature_types=matrix.kinds,
        objective="reg:squarederror",
        base_score=mean if poisson is None else poisson.base(),
        max_delta_step=0.0 if poisson is None else poisson.largest_step,
        seed=seed,
        verbose=False,
        **parameters_of(capacity),
        **more,
    )

    def document(spark: SparkSession) -> bytes:
        # as many partitions as workers: the estimator then moves no row
        rows = mapped(spark.range(0, len(matrix.looks.paths), 1, workers), matrix, matrix.columns)
        return bytes(estimator.fit(rows).get_booster().save_raw("json"))

    codes = [0] * len(matrix.schema.number_names) + [size - 1 for size in matrix.schema.sizes]
    return Trees(load_booster(checked_document(json.loads(cluster.ask(document)), matrix.kinds, codes)), poisson)
