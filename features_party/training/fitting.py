"""Training of a model on labels that are mostly noise. Pure: arrays in, a model out; no files, no clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import numpy.typing as npt

from features_party.training.capacity import Capacity, choose_capacity
from features_party.training.cells import CellLikelihood
from features_party.training.class_likelihood import ClassLikelihood
from features_party.training.classes import are_classes
from features_party.training.crossed_effects import choose_crossings
from features_party.training.draws import Draws, by_position
from features_party.training.encoding import Encoded, FeatureSchema
from features_party.training.example_groups import ExampleGroups
from features_party.training.learner import CrossFit, Learner, Rowwise, Sample, Task, Watch
from features_party.training.learners import learner
from features_party.training.learners.class_trees import fit_classes
from features_party.training.learners.trees import left_by_trees
from features_party.training.likelihood import RowLikelihood
from features_party.training.model import TrainedModel
from features_party.training.objectives import ChannelGradients
from features_party.training.progress import part
from features_party.training.threads import one_blas_thread
from features_party.training.warm import Warm
from features_party.training.words import learn_words
from label_dp.domain import Domain
from label_dp.errors import InvalidLoss, InvalidTable
from label_dp.progress import Progress
from label_dp.schemas.training import Learning

if TYPE_CHECKING:
    import pyarrow as pa

FloatArray = npt.NDArray[np.float64]

LOSSES: tuple[str, ...] = get_args(get_args(Learning.model_fields["loss"].annotation)[0])
LOG = "log"
NO_CHANNELS = "The log loss of privatized labels needs their channels."
CLEAN_ENOUGH = 0.2  # above this share of noise in the label variance a median of labels is a median of noise


@dataclass(frozen=True)
class Examples:
    """Rows to learn E[label | features] from.

    `labels` float64[n] may be corrected ones (negative, outside the domain) or true ones. `noise_variance` is the
    variance added by the mechanism, one figure or float64[n] (for rows of several messages; noisier rows weigh less); 0
    for true labels. `unbiased`: the labels are unbiased, at least nearly, so that models can be compared on them.
    `groups` integer[n]: rows of one example, which have the same features and whose outputs are combined. `draws`
    uint64[n] split the rows (draws.py): hashes of their examples' ids; None: of their positions. `told`: the gradients
    of the absolute or the log loss by the channels of privatized labels. `cells`: the likelihood of label distributions
    by the same channels, if they identify more than a mean; used by the ensemble under the squared loss, and under the
    absolute one if it predicts medians around its means.
    """

    features: pa.Table
    labels: FloatArray
    noise_variance: float | FloatArray = 0.0
    domain: Domain | None = None
    unbiased: bool = False
    groups: Rowwise | None = None
    draws: Draws | None = None
    told: ChannelGradients | ClassLikelihood | None = None
    cells: CellLikelihood | None = None

    def take(self, rows: npt.NDArray[np.int64]) -> Examples:
        noise = np.asarray(self.noise_variance)
        return replace(
            self,
            features=self.features.take(rows),
            labels=self.labels[rows],
            noise_variance=noise if noise.ndim == 0 else noise[rows],
            groups=None if self.groups is None else self.groups[rows],
            draws=None if self.draws is None else self.draws[rows],
            told=None if self.told is None else self.told.take(rows),
            cells=None if self.cells is None else self.cells.take(rows),
        )

    def together(self) -> tuple[Examples, ExampleGroups | None]:
        """Merge the rows of each example into one; unchanged if the channels allow no such row."""
        rows = None if self.groups is None else ExampleGroups.of(self.groups)
        merged = None if self.told is None or rows is None else self.told.together(rows)
        if rows is None or (merged is None and self.told is not None):
            return self, None
        noise = np.broadcast_to(np.asarray(self.noise_variance, np.float64), self.labels.shape)
        labels, variances = rows.labels(self.labels, noise)
        features, cells = self.features.take(rows.first), None if self.cells is None else self.cells.together(rows)
        draws = None if self.draws is None else self.draws[rows.first]
        one = replace(self, features=features, labels=labels, noise_variance=variances, groups=None, draws=draws)
        return replace(one, told=merged, cells=cells), rows

    @property
    def apart(self) -> int:
        """Number of examples: rows, or groups of them."""
        return len(self.labels) if self.groups is None else len(np.unique(self.groups))

    @property
    def dealt_by(self) -> Draws:
        if self.draws is not None:
            return self.draws
        groups = np.arange(len(self.labels)) if self.groups is None else self.groups
        return by_position(groups, self.labels)

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Ends of the label domain."""
        return None if self.domain is None else (float(self.domain.values[0]), float(self.domain.values[-1]))


@dataclass(frozen=True)
class Recipe:
    """Options of a training.

    A model and a loss; columns to treat as categories or to leave out; a capacity in place of the rule's, which turns
    validation off; whether tree models see statistics of large categories (training/category_statistics.py), and
    crossed effects (crossed_effects.py); the settings of one learner (`mlp_fit.NetworkSettings`); and the choices of an
    earlier model.
    """

    model: str = "ensemble"
    loss: str = "squared"
    categorical: Sequence[str] = ()
    exclude: Sequence[str] = ()
    capacity: Capacity | None = None
    category_statistics: bool = True
    crossings: bool = True
    settings: Any = None
    warm: Warm | None = None


def fit(
    examples: Examples,
    recipe: Recipe,
    *,
    threads: int = 1,
    progress: Progress = lambda _what, _share: None,
    watch: Watch = lambda _place, _loss: None,
) -> tuple[TrainedModel, CrossFit | None]:
    """Fit the model; returns it and, if validated, the out-of-fold predictions of the whole procedure (else None).

    Rows of one example are combined first (example_groups.py). Predictions lie inside the domain. Deterministic for a
    number of threads. Raises InvalidTable (no rows, no usable column), InvalidInput (model, a missing library),
    InvalidLoss (unknown, or Poisson with a domain that has negative labels; log of other labels than two, or 3 to 100
    classes, which trees alone learn).
    """
    kind, loss = learner(recipe.model), recipe.loss
    if loss not in LOSSES:
        raise InvalidLoss(f"There is no training loss '{loss}'; choose one of {', '.join(LOSSES)}.")
    n = examples.features.num_rows
    if n == 0 or examples.labels.shape != (n,) or not np.all(np.isfinite(examples.labels)):
        raise InvalidTable("Training needs at least one row, and one finite label for each row.")
    examples, groups = examples.together()
    features, labels, draws, bounds = examples.features, examples.labels, examples.dealt_by, examples.bounds
    n = len(labels)
    if loss == "poisson" and bounds is not None and bounds[0] < 0:
        raise InvalidLoss("The Poisson loss needs a domain without negative labels; use --loss squared.")
    spread = bounds[1] - bounds[0] if bounds is not None else math.inf
    ruled, weights = judged(labels, examples.noise_variance, spread)
    gradients = None if isinstance(examples.told, ClassLikelihood) or not kind.of_trees else examples.told
    clean = examples.unbiased or ruled.noise_variance == 0.0
    validate = recipe.capacity is None and clean
    medians = validate and examples.cells is not None and kind.medians_from is not None
    medians = medians and examples.apart >= (kind.medians_from or 0)
    objective, notes, channel_gradients = _objective(loss, ruled, gradients, medians)
    label_weights, squares = weights, ruled
    classes: ClassLikelihood | None = None
    scarce: tuple[str, ...] = ()
    if loss == LOG:
        likelihood = _likelihood(examples, kind)
        if isinstance(likelihood, ClassLikelihood):
            classes = likelihood
        else:
            channel_gradients = likelihood
            scarce = likelihood.notes
        ruled, weights = likelihood.capacity(), None
        notes = () if examples.told is None else ("the log loss was trained through the channel of each message",)
    elif channel_gradients is not None:
        signal = ruled.signal_share * ruled.label_variance
        ruled = choose_capacity(n, signal * (1.0 + channel_gradients.noise), signal * channel_gradients.noise)
    progress("encoding features", 0.0)
    schema = FeatureSchema.learn(features, categorical=recipe.categorical, exclude=recipe.exclude)
    encoded = schema.encode(features)
    ends = bounds or (0.0 if loss == "poisson" else float(labels.min()), float(labels.max()))
    shrinkage: tuple[float | None, ...] = ()
    if kind.of_trees:
        by_squares = Task(schema.sizes, "squared", ends, squares, threads)
        look = replace(recipe, crossings=recipe.crossings and classes is None)
        schema, encoded, shrinkage = made_columns(
            schema, encoded, labels, draws, label_weights, by_squares, look, progress
        )
    task = Task(
        sizes=schema.sizes,
        loss=objective,
        bounds=ends,
        capacity=recipe.capacity or ruled,
        threads=threads,
        smooth=len(schema.number_names) - sum(statistic.trees_only for statistic in schema.statistics),
        unbiased=examples.unbiased,
        validate=validate and objective not in ("absolute", LOG),
        compared=recipe.capacity is None,
        told=channel_gradients,
        median=loss == "absolute",
        shrinkage=shrinkage,
        settings=recipe.settings,
        members=None if recipe.warm is None else recipe.warm.members,
        words=learn_words([column.vocabulary for column in schema.categories]),
        watch=watch,
    )
    # effects for classes use labels of their own (class_contrast.py), which account for the channels
    effect_weights = None if classes is not None else label_weights
    cells = examples.cells if objective == "squared" else None
    sample = Sample(encoded, labels, draws, weights, effect_weights, cells)
    rest = part(progress, 0.05, 0.95)
    with one_blas_thread():
        if classes is None:
            result = kind.fit(sample, task, rest)
        else:
            result = fit_classes(sample, task, classes, rest, averaged=recipe.model == "ensemble")
    mean = float(np.average(labels, weights=label_weights))
    several = "the {:,} outputs of {:,} examples were taken together, each for what its channel lets it say"
    left_out = tuple(f"column '{name}' was left out: {why}" for name, why in schema.left_out)
    trained = TrainedModel(
        kind=recipe.model,
        loss=loss,
        objective=objective,
        schema=schema,
        effects=result.effects,
        body=result.body,
        bounds=bounds,
        mean=mean if bounds is None else float(np.clip(mean, *bounds)),
        capacity=task.capacity,
        notes=(
            *notes,
            *scarce,
            *(() if groups is None else (several.format(len(groups.which), len(groups.first)),)),
            *result.notes,
            *left_out,
            *(() if recipe.warm is None else (recipe.warm.note,)),
        ),
        classes=None if classes is None else examples.domain,
    )
    return trained, result.cross if groups is None or result.cross is None else result.cross.take(groups.which)


def made_columns(
    schema: FeatureSchema,
    encoded: Encoded,
    labels: FloatArray,
    draws: Draws,
    weights: FloatArray | None,
    by_squares: Task,
    recipe: Recipe,
    progress: Progress,
) -> tuple[FeatureSchema, Encoded, tuple[float | None, ...]]:
    """Return the schema with the crossings and statistics that the recipe wants, its encoding, and the crossings' λ."""
    shrinkage: tuple[float | None, ...] = ()
    if recipe.crossings:
        crossings, shrinkage = choose_crossings(
            encoded,
            labels,
            draws,
            schema.sizes,
            schema.column_numbers,
            schema.category_names,
            lambda share: progress("crossed effects", 0.03 + 0.02 * share),
            weights,
            lambda *rows: left_by_trees(Sample(*rows), by_squares),
            None if recipe.warm is None else recipe.warm.crossings,
        )
        schema, encoded = schema.with_crossings(crossings, encoded)
    if recipe.category_statistics:
        progress("statistics of categories", 0.02)
        schema, encoded = schema.with_statistics(encoded, draws)
    return schema, encoded, shrinkage


def _likelihood(examples: Examples, kind: type[Learner]) -> RowLikelihood | ClassLikelihood:
    """Build the likelihood through the channels, or of true labels. Raises InvalidLoss."""
    if examples.domain is not None and are_classes(examples.domain):
        return _classes(examples, examples.domain, kind)
    if isinstance(examples.told, RowLikelihood):
        return examples.told
    if np.any(np.asarray(examples.noise_variance) > 0.0):
        raise InvalidLoss(NO_CHANNELS)
    return RowLikelihood.certain(examples.labels, examples.bounds or (0.0, 1.0))


def _classes(examples: Examples, domain: Domain, kind: type[Learner]) -> ClassLikelihood:
    """Build the likelihood of 3 to 100 classes. Raises InvalidLoss."""
    if not kind.of_trees:
        raise InvalidLoss(
            "Labels of more than two values are learned as classes by ensemble and trees; choose one of them."
        )
    if isinstance(examples.told, ClassLikelihood):
        return examples.told
    if np.any(np.asarray(examples.noise_variance) > 0.0):
        raise InvalidLoss(NO_CHANNELS)
    return ClassLikelihood.certain(examples.labels, domain)


def judged(
    labels: FloatArray, noise_variance: float | FloatArray, spread: float, often: FloatArray | None = None
) -> tuple[Capacity, FloatArray | None]:
    """Return the capacity, and weights float64[n] of mean 1, inverse to signal + noise; None if all rows are equal.

    `often` float64[n] is the number of rows that a merged row represents. Weighted rows of different noise have the
    information of rows of the one noise at which signal/(signal + noise) is their mean, so messages add up.
    """
    noise = np.asarray(noise_variance, dtype=np.float64)
    n = len(labels) if often is None else int(often.sum())
    variance = float(np.var(labels)) if often is None else _mean((labels - _mean(labels, often)) ** 2, often)
    capacity = choose_capacity(n, variance, _mean(noise, often), spread)
    if noise.ndim == 0 or np.ptp(noise) <= 1e-9 * max(float(noise.max()), 1e-300):
        return capacity, None
    signal = _signal(labels, noise, often) or capacity.signal_share * capacity.label_variance
    total = np.maximum(noise + signal, 1e-9 * float(noise.max()))
    if signal > 0.0:
        even = signal * (1.0 / _mean(signal / total, often) - 1.0)
        capacity = choose_capacity(n, signal + even, even, spread)
    weights = 1.0 / total
    return capacity, weights / _mean(weights, often)


def _mean(values: FloatArray, often: FloatArray | None) -> float:
    return float(values.mean()) if often is None else float(np.average(values, weights=often))


def _signal(labels: FloatArray, noise: FloatArray, often: FloatArray | None) -> float:
    """Estimate the variance of the labels without noise, each noise level weighted by its precision; 0 if not
    identified."""
    levels, which = np.unique(noise, return_inverse=True)
    times = np.ones(len(labels)) if often is None else often
    rows = np.bincount(which, times)
    means = np.bincount(which, times * labels) / rows
    variances = np.bincount(which, times * (labels - means[which]) ** 2) / rows
    precision = rows / np.maximum(variances, 1e-150) ** 2  # a variance's own variance goes as its square over the rows
    return max(0.0, float(np.average(variances - levels, weights=precision)))


def _objective(
    loss: str, capacity: Capacity, gradients: ChannelGradients | None, medians: bool
) -> tuple[str, tuple[str, ...], ChannelGradients | None]:
    """Return the training objective, notes on it, and the gradients it uses. `medians`: predict them around means."""
    share = capacity.signal_share
    if loss != "absolute" or capacity.noise_variance <= 0.0:
        return loss, (), None
    if medians:  # which err less than gradients, if both are available
        return "squared", (), None
    # as noisy as the mean's: then the median is worth having
    if gradients is not None and gradients.noise * share <= 1.0 - share:
        return loss, ("the absolute loss was trained on by its expected gradients under the channel",), gradients
    if share >= 1.0 - CLEAN_ENOUGH:
        return loss, (), None
    return (
        "squared",
        (
            "the absolute loss was replaced by the squared one in training: these outputs do not tell the distribution "
            "of the labels, or too noisily, and a median of labels with this much noise says nothing on theirs",
        ),
        None,
    )
