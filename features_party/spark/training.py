"""The model `trees` trained from files. Its correction, capacity, encodings and weights are those of one in memory.

The files of the join are read one by one, here or by tasks. In memory are some rows, of which crossed effects and
statistics of categories are learned, and where there are categories the codes of all rows, for their joint effects.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from features_party.models.trainer import common_domain
from features_party.spark.executor.blocks import unpacked
from features_party.spark.executor.encoding import ExampleArrays, Looks, Matrix
from features_party.spark.executor.meeting import DRAW_BITS
from features_party.spark.joined import JoinParts
from features_party.spark.trees import Here, OnSpark
from features_party.training.capacity import Capacity
from features_party.training.effects import FOLDS, Effects, fit_effects
from features_party.training.encoding import FeatureSchema
from features_party.training.fitting import Recipe, judged, made_columns
from features_party.training.learner import Task
from features_party.training.learners.trees import MIN_ROWS
from features_party.training.links import PoissonScore
from features_party.training.model import TrainedModel
from features_party.training.progress import part
from features_party.training.recentring import move
from features_party.training.threads import one_blas_thread
from features_party.training.words import learn_words
from label_dp.columnar.frames import PANDAS_INDEX
from label_dp.domain import Domain
from label_dp.errors import InvalidInput, InvalidLoss, InvalidTable, TooLarge
from label_dp.progress import Progress
from label_dp.schemas.training import Learning

if TYPE_CHECKING:
    import pyarrow as pa

FloatArray = npt.NDArray[np.float64]
SOME_CELLS = 1 << 24  # cells of the rows that the driver reads
COPIES = 2.0  # of the codes, in the arrays that are made of them
NO_ESTIMATE = (
    "none: a training from files holds no rows out; `evaluate` judges the model on examples that it did not learn "
    "from, by their true labels or by a message"
)
LOSSES = ("squared", "poisson")


def check_learning(learning: Learning, engine: str) -> None:
    """Raise InvalidInput for options of the local engine only."""
    if learning.model not in ("ensemble", "trees"):
        raise InvalidInput(
            f"--engine {engine} trains the model trees; the model {learning.model} needs the local engine."
        )
    if learning.warm_start is not None:
        raise InvalidInput(f"--engine {engine} takes no earlier model up: leave it or --warm-start out.")


def feature_types(schema: pa.Schema, id_column: str, learning: Learning) -> dict[str, Any]:
    """Return the Arrow types of the columns that a training reads besides the ids: all except those to leave out and
    pandas' index. Raises InvalidTable for a missing column."""
    types = {f.name: f.type for f in schema if f.name != id_column and not PANDAS_INDEX.fullmatch(f.name)}
    for name in (*learning.categorical, *learning.exclude):
        if name not in types:
            raise InvalidTable(f"There is no feature column '{name}' to treat specially; check its spelling.")
    return {name: kind for name, kind in types.items() if name not in learning.exclude}


def check_loss(loss: str, domain: Domain, engine: str) -> None:
    """Raise InvalidLoss for a loss that is not trained from files, or that the domain excludes."""
    if loss not in LOSSES or domain.nominal:
        way = "leave the engine out" if domain.nominal else "say --loss squared, or leave the engine out"
        raise InvalidLoss(f"--engine {engine} trains with the losses squared and poisson, not with {loss}: {way}.")
    if loss == "poisson" and domain.values[0] < 0:
        raise InvalidLoss("The Poisson loss needs a domain without negative labels; use --loss squared.")


@dataclass(frozen=True)
class FilesFit:
    """Training on the files of a join, of columns of these `types`. `memory`: bytes for what is not in files."""

    work: OnSpark | Here
    types: dict[str, Any]
    parts: JoinParts
    learning: Learning
    loss: str
    threads: int
    memory: int

    def model(self, progress: Progress) -> TrainedModel:
        """Train. Raises InvalidTable (no usable column, too few rows), TooLarge, Unavailable."""
        if self.parts.examples < MIN_ROWS:
            raise InvalidTable(f"--engine {self.work.engine} trains on {MIN_ROWS} examples or more; leave it out.")
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
        matrix = Matrix(self._looks, schema, folds, levels, weights)
        progress(f"growing {capacity.rounds} trees", 0.5)
        start, step = (mean, 0.0) if poisson is None else (poisson.base(), poisson.largest_step)
        settings = {"objective": "reg:squarederror", "base_score": start, "max_delta_step": step}
        settings |= {"seed": self.parts.seed}
        body = self.work.trees(matrix, capacity, settings, poisson, part(progress, 0.5, 0.48))
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
            notes=tuple(self._notes(schema, seen)),
        )

    # --- labels -------------------------------------------------------------------------------------------

    @cached_property
    def _looks(self) -> Looks:
        """Labels of a message that is here with all its rows are moved as in a local training."""
        parts, often = self.parts, self._output_rows
        values = parts.labels.corrected.copy()
        comparable = all(one.comparable for one in parts.corrections)
        for message, start, one in zip(parts.messages, parts.labels.starts, parts.corrections, strict=True):
            manifest, own = message.manifest, slice(int(start), int(start) + len(one.raw))
            rows = often[own]
            if comparable and manifest.prior.source == "estimated" and int(rows.sum()) == manifest.n:
                mean = float(np.average(values[own], weights=rows))
                variance = float(np.average((values[own] - mean) ** 2, weights=rows))
                domain = manifest.read_channel().labels
                epsilon, cells = float(str(manifest.epsilon.prior)), manifest.prior.cells or len(domain)
                values[own] += move(manifest.n, mean, variance, domain, message.prior(), epsilon, cells)
        return Looks(tuple(map(str, parts.paths)), values, parts.labels.noise_variance)

    @property
    def _output_rows(self) -> npt.NDArray[np.int64]:
        """int64[outputs]: rows of each."""
        sets, outputs = self.parts.sets, len(self.parts.labels.corrected)
        often = np.broadcast_to(self.parts.often[:, None], sets.shape)
        return np.bincount(sets[sets >= 0], often[sets >= 0], minlength=outputs).astype(np.int64)

    @property
    def _bounds(self) -> tuple[float, float]:
        values = common_domain(list(self.parts.messages)).values
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
        categorical = [name for name in self.learning.categorical if name in self.types]
        counted = partial(self.work.counted, self.parts.paths, self.types)
        return FeatureSchema.of_columns(self.types, self.parts.examples, counted, categorical=categorical)

    def _check_memory(self, schema: FeatureSchema) -> None:
        """Raise TooLarge if effects of categories would take more memory than a training may."""
        if not schema.sizes:
            return
        size = int(COPIES * self.parts.examples * (8 * len(schema.sizes) + 24))
        if size > self.memory:
            raise TooLarge(
                f"Effects of {len(schema.sizes)} categories on {self.parts.examples:,} rows take {size >> 20:,} MiB; a "
                f"training may take {self.memory >> 20:,} MiB. Raise FEATURES_PARTY_TRAINING_MEMORY_MB (on Spark the "
                "driver's), or leave columns out with --exclude."
            )

    def _made(self, schema: FeatureSchema, progress: Progress) -> tuple[FeatureSchema, tuple[float | None, ...], int]:
        """The schema with crossings and statistics, the crossings' λ, and on how many rows they were learned."""
        wanted = max(SOME_CELLS // max(len(schema.columns), 1), 1)
        below = min(1.0, wanted / self.parts.counts.matched) * (1 << DRAW_BITS)
        records = self.work.pieces(ExampleArrays(self._looks, math.ceil(below)), len(self.parts.paths))
        table = unpacked([record["features"] for record in records])
        labels, noise = (np.concatenate([np.frombuffer(r[name]) for r in records]) for name in ("labels", "noise"))
        draws = np.concatenate([np.frombuffer(record["draws"], "<u8") for record in records])
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
        records = self.work.pieces(ExampleArrays(self._looks, schema=schema), len(self.parts.paths))

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

    def _notes(self, schema: FeatureSchema, seen: int) -> list[str]:
        n, rows = self.parts.examples, self.parts.counts.matched
        notes = [f"the trees were grown {self.work.how}"]
        if self.learning.model == "ensemble":
            notes.append(f"--engine {self.work.engine} trains the model trees; the ensemble is the local engine's")
        if rows > n:
            notes.append(
                f"the {rows:,} outputs of {n:,} examples were taken together, each for what its channel lets it say"
            )
        if seen < n:
            notes.append(f"crossed effects and statistics of categories were learned from {seen:,} rows of {n:,}")
        return notes + [f"column '{name}' was left out: {why}" for name, why in schema.left_out]
