"""The model `trees` trained on a cluster: its correction, capacity, encodings and weights are those of the local one.

The files of the join are read by tasks. The driver holds some rows, on which it chooses crossed effects and learns
statistics of categories, and where there are categories the codes of all rows, for their joint effects.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from features_party.models.trainer import common_domain
from features_party.spark.executor.blocks import unpacked
from features_party.spark.executor.encoding import Codes, Looks, Matrix, Some
from features_party.spark.executor.meeting import DRAW_BITS, FIRST
from features_party.spark.features import SparkFeatures
from features_party.spark.joined import Corrected, JoinParts
from features_party.spark.trees import grown
from features_party.training.capacity import Capacity
from features_party.training.column_cells import holds_of
from features_party.training.effects import FOLDS, Effects, fit_effects
from features_party.training.encoding import MAX_VOCABULARY, Counted, FeatureSchema
from features_party.training.fitting import Recipe, judged, made_columns
from features_party.training.learner import Task
from features_party.training.learners.trees import MIN_ROWS
from features_party.training.links import PoissonScore
from features_party.training.model import TrainedModel
from features_party.training.recentring import move
from features_party.training.threads import one_blas_thread
from features_party.training.words import learn_words
from label_dp.domain import Domain
from label_dp.errors import InvalidInput, InvalidLoss, InvalidTable, TooLarge
from label_dp.progress import Progress
from label_dp.schemas.training import Learning
from label_dp.spark.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FloatArray = npt.NDArray[np.float64]
SOME_CELLS = 1 << 24  # cells of the rows that the driver reads
SHARE = 2.0  # of the memory of a training, the arrays that are made of codes
NO_ESTIMATE = (
    "none: Spark holds no rows out; `evaluate` judges the model on examples that it did not learn from, by their true "
    "labels or by a message"
)
LOSSES = ("squared", "poisson")


def check_learning(learning: Learning) -> None:
    """Raise InvalidInput for options of the local engine only."""
    if learning.model not in ("ensemble", "trees"):
        raise InvalidInput(f"Spark trains the model trees; the model {learning.model} needs the local engine.")
    if learning.warm_start is not None:
        raise InvalidInput("Spark takes no earlier model up: leave --engine spark or --warm-start out.")


def check_columns(features: SparkFeatures, learning: Learning) -> None:
    """Raise InvalidTable for a missing column."""
    for name in (*learning.categorical, *learning.exclude):
        if name not in features.columns or name == features.id_column:
            raise InvalidTable(f"There is no feature column '{name}' to treat specially; check its spelling.")


def check_loss(loss: str, domain: Domain) -> None:
    """Raise InvalidLoss for a loss that Spark does not train, or that the domain excludes."""
    if loss not in LOSSES or domain.nominal:
        way = "leave --engine spark out" if domain.nominal else "say --loss squared, or leave --engine spark out"
        raise InvalidLoss(f"Spark trains with the losses squared and poisson, and here it is {loss}: {way}.")
    if loss == "poisson" and domain.values[0] < 0:
        raise InvalidLoss("The Poisson loss needs a domain without negative labels; use --loss squared.")


@dataclass(frozen=True)
class ClusterFit:
    """Training on the files of a `bare` join. `memory`: bytes for the driver."""

    cluster: Cluster
    features: SparkFeatures
    corrected: Corrected
    parts: JoinParts
    learning: Learning
    loss: str
    threads: int
    memory: int

    def model(self, progress: Progress) -> TrainedModel:
        """Train. Raises InvalidTable (no usable column, too few rows), TooLarge, Unavailable."""
        if self.parts.examples < MIN_ROWS:
            raise InvalidTable(f"Spark trains on {MIN_ROWS} examples or more; leave --engine spark out.")
        bounds, (capacity, levels, weights) = self._bounds, self._capacity
        progress("looking at categories", 0.3)
        schema = self._schema()
        self._check_memory(schema)
        progress("looking at some rows", 0.32)
        with one_blas_thread():
            schema, shrinkage, seen = self._made(schema, progress)
            progress("effects of categories", 0.4)
            folds, effects = self._effects(schema, shrinkage)
        labels, noise = self._looks.of(self.parts.sets)
        own = self._weights(noise)
        mean = float(np.average(labels, weights=self.parts.often * (1.0 if own is None else own)))
        poisson = PoissonScore.around(mean, *bounds) if self.loss == "poisson" else None
        workers = min(self.cluster.parallelism, len(self.parts.paths))
        matrix = Matrix(self._looks, schema, folds, levels, weights)
        progress(f"growing {capacity.rounds} trees", 0.5)
        body = grown(self.cluster, matrix, capacity, mean, poisson, workers, self.corrected.seed)
        return TrainedModel(
            kind="trees",
            loss=self.loss,
            objective=self.loss,
            schema=schema,
            effects=effects,
            body=body,
            bounds=bounds,
            mean=float(np.clip(mean, *bounds)),
            capacity=capacity,
            notes=tuple(self._notes(schema, seen, workers)),
        )

    # --- labels -------------------------------------------------------------------------------------------

    @cached_property
    def _looks(self) -> Looks:
        """Labels of a message that is here with all its rows are moved as in a local training."""
        labels, often = self.corrected.labels, self._output_rows
        values = labels.corrected.copy()
        comparable = all(one.comparable for one in self.corrected.corrections)
        for message, start, one in zip(self.corrected.messages, labels.starts, self.corrected.corrections, strict=True):
            manifest, own = message.manifest, slice(int(start), int(start) + len(one.raw))
            rows = often[own]
            if comparable and manifest.prior.source == "estimated" and int(rows.sum()) == manifest.n:
                mean = float(np.average(values[own], weights=rows))
                variance = float(np.average((values[own] - mean) ** 2, weights=rows))
                domain = manifest.read_channel().labels
                epsilon, cells = float(str(manifest.epsilon.prior)), manifest.prior.cells or len(domain)
                values[own] += move(manifest.n, mean, variance, domain, message.prior(), epsilon, cells)
        return Looks(tuple(map(str, self.parts.paths)), values, labels.noise_variance)

    @property
    def _output_rows(self) -> npt.NDArray[np.int64]:
        """int64[outputs]: rows of each."""
        sets, outputs = self.parts.sets, len(self.corrected.labels.corrected)
        often = np.broadcast_to(self.parts.often[:, None], sets.shape)
        return np.bincount(sets[sets >= 0], often[sets >= 0], minlength=outputs).astype(np.int64)

    @property
    def _bounds(self) -> tuple[float, float]:
        values = common_domain(list(self.corrected.messages)).values
        return float(values[0]), float(values[-1])

    @cached_property
    def _capacity(self) -> tuple[Capacity, FloatArray, FloatArray]:
        """Capacity, and the weights of rising levels of noise, none where all rows weigh alike."""
        labels, noise = self._looks.of(self.parts.sets)
        spread = self._bounds[1] - self._bounds[0]
        capacity, weights = judged(labels, noise, spread, self.parts.often.astype(np.float64))
        if weights is None:
            return capacity, np.empty(0), np.empty(0)
        levels, first = np.unique(noise, return_index=True)
        return capacity, levels, weights[first]

    def _weights(self, noise: FloatArray) -> FloatArray | None:
        """float64[n] for rows of such noise; None where all weigh alike."""
        _, levels, weights = self._capacity
        return weights[np.searchsorted(levels, noise)] if levels.size else None

    # --- features -----------------------------------------------------------------------------------------

    def _schema(self) -> FeatureSchema:
        own = set(self.features.columns) - {self.features.id_column, *self.learning.exclude}
        types = {field.name: field.type for field in self.features.schema if field.name in own}
        for name in self.learning.categorical:
            if name in types and holds_of(types[name], name) in ("number", "time", "zoned time"):
                raise InvalidTable(
                    f"On Spark a category holds text, whole numbers, booleans or dates, and the column '{name}' holds "
                    f"{types[name]}; store it as one of these, or leave --engine spark out."
                )
        categorical = [name for name in self.learning.categorical if name not in self.learning.exclude]
        return FeatureSchema.of_columns(types, self.parts.examples, self._counted, categorical=categorical)

    def _counted(self, name: str) -> Counted:
        paths = [f"file://{path}" for path in self.parts.paths]

        def values(spark: SparkSession) -> DataFrame:
            from pyspark.sql.functions import col

            column = col(f"`{name}`").cast("string").alias("value")
            rows = spark.read.parquet(*paths).where(FIRST).select(column).where("value <> ''")
            return rows.repartition(4 * parts, "value").groupBy("value").count()

        parts = self.cluster.parallelism
        found = self.cluster.collect(lambda spark: values(spark).selectExpr("count(*) as n"))[0]["n"]
        most = self.cluster.collect(
            lambda spark: values(spark).orderBy("count", "value", ascending=[False, True]).limit(MAX_VOCABULARY)
        )
        return int(found), [str(row["value"]) for row in most]

    def _check_memory(self, schema: FeatureSchema) -> None:
        """Raise TooLarge if effects of categories would take more memory than a training may."""
        if not schema.sizes:
            return
        size = int(SHARE * self.parts.examples * (8 * len(schema.sizes) + 24))
        if size > self.memory:
            raise TooLarge(
                f"Effects of {len(schema.sizes)} categories on {self.parts.examples:,} rows take {size >> 20:,} MiB on "
                f"the driver; a training may take {self.memory >> 20:,} MiB. Raise FEATURES_PARTY_TRAINING_MEMORY_MB "
                "there, or leave columns out with --exclude."
            )

    def _made(self, schema: FeatureSchema, progress: Progress) -> tuple[FeatureSchema, tuple[float | None, ...], int]:
        """The schema with crossings and statistics, the crossings' λ, and on how many rows they were learned."""
        wanted = max(SOME_CELLS // max(len(schema.columns), 1), 1)
        below = min(1.0, wanted / self.parts.counts.matched) * (1 << DRAW_BITS)
        found = self.cluster.pieces(Some(self._looks, math.ceil(below)), len(self.parts.paths))
        table = unpacked([record["features"] for record in found])
        labels, noise = (np.concatenate([np.frombuffer(r[name]) for r in found]) for name in ("labels", "noise"))
        draws = np.concatenate([np.frombuffer(record["draws"], "<u8") for record in found])
        own = self._weights(noise)
        encoded = schema.encode(table)
        by_squares = Task(schema.sizes, "squared", self._bounds, self._capacity[0], self.threads)
        recipe = Recipe("trees", self.loss)
        feature_schema, _, shrinkage = made_columns(schema, encoded, labels, draws, own, by_squares, recipe, progress)
        return feature_schema, shrinkage, len(labels)

    def _effects(self, schema: FeatureSchema, shrinkage: Sequence[float | None]) -> tuple[tuple[Effects, ...], Effects]:
        """By fold for the rows of the training, and their averages for later rows, as `effects.out_of_fold`."""
        sizes, n = schema.sizes, self.parts.examples
        if n < 2 * FOLDS or not sizes:
            return (), Effects(tuple(np.zeros(size) for size in sizes))
        records = self.cluster.pieces(Codes(self._looks, schema), len(self.parts.paths))

        def whole(name: str, kind: Any) -> npt.NDArray[Any]:
            return np.concatenate([np.frombuffer(record[name], kind) for record in records])

        codes = whole("codes", "<i4").reshape(-1, len(sizes))
        labels, noise, fold = whole("labels", np.float64), whole("noise", np.float64), whole("fold", np.int8)
        own = self._weights(noise)
        words = learn_words([column.vocabulary for column in schema.categories])
        folds = []
        for at in range(FOLDS):
            rest = fold != at
            told = None if own is None else own[rest]
            folds.append(fit_effects(codes[rest], labels[rest], sizes, shrinkage, told, words))
        averages = (np.mean(tables, axis=0) for tables in zip(*(one.tables for one in folds), strict=True))
        return tuple(folds), Effects(tuple(averages))

    def _notes(self, schema: FeatureSchema, seen: int, workers: int) -> list[str]:
        n, rows = self.parts.examples, self.parts.counts.matched
        notes = [f"the trees were grown on Spark by {workers} workers, each on the rows of its files"]
        if self.learning.model == "ensemble":
            notes.append("Spark trains the model trees; the ensemble is the local engine's")
        if rows > n:
            notes.append(
                f"the {rows:,} outputs of {n:,} examples were taken together, each for what its channel lets it say"
            )
        if seen < n:
            notes.append(f"crossed effects and statistics of categories were learned from {seen:,} rows of {n:,}")
        return notes + [f"column '{name}' was left out: {why}" for name, why in schema.left_out]
