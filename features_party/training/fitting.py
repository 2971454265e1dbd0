"""Training a model on labels that are mostly noise. Pure: arrays in, a model out; no files, no clock."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ParamSpec

import numpy as np
import numpy.typing as npt

from features_party.training.capacity import Capacity, choose_capacity
from features_party.training.crossfit import SMALLEST, CrossFit, Task, fit_validated
from features_party.training.effects import Effects, out_of_fold
from features_party.training.encoding import Encoded, FeatureSchema
from features_party.training.ensemble import Ensemble
from features_party.training.gbdt import TreeInput, Trees, fit_trees
from features_party.training.linear import Linear, fit_linear
from features_party.training.mlp import Network
from features_party.training.mlp_fit import Settings, fit_network
from features_party.training.model import TrainedModel, category_sizes
from features_party.training.objectives import RowGradients
from features_party.training.threads import blas_threads
from shared.domain import Domain
from shared.errors import InvalidInput, InvalidLoss, InvalidTable
from shared.service.cli import Progress

if TYPE_CHECKING:
    import pyarrow as pa

FloatArray = npt.NDArray[np.float64]
P = ParamSpec("P")

MODELS = ("gbdt", "trees", "linear", "mlp")
LOSSES = ("squared", "absolute", "poisson")
TREES = ("gbdt", "trees")
CLEAN_ENOUGH = 0.2  # above this share of noise in the label variance a median of labels is a median of noise


def fit_and_judge(
    features: pa.Table,
    labels: FloatArray,
    *,
    noise_variance: float | FloatArray = 0.0,
    domain: Domain | None = None,
    model: str = "gbdt",
    loss: str = "squared",
    categorical: Sequence[str] = (),
    exclude: Sequence[str] = (),
    unbiased: bool = False,
    groups: npt.NDArray[np.integer] | None = None,
    capacity: Capacity | None = None,
    told: RowGradients | None = None,
    network: Settings | None = None,
    category_statistics: bool = True,
    progress: Progress | None = None,
    threads: int = 1,
) -> tuple[TrainedModel, CrossFit | None]:
    """A model of E[label | features] for n rows, which `fit` returns alone.

    Beside it the out-of-fold predictions of the whole procedure where it was validated, None elsewhere.
    `labels` float64[n] may be corrected ones (negative, outside of the domain) or true ones. `noise_variance` is the
    variance that the mechanism added, one figure or float64[n] (rows of several messages: noisier rows then weigh
    less); 0 for true labels. Predictions lie inside `domain`. Deterministic for a number of threads.
    `unbiased`: the labels have the true ones as their expectation, if only nearly, so that models can be compared on
    them: model gbdt is then an ensemble chosen by cross-validation, as for true labels; otherwise, like model trees,
    trees of the size that the rule says, or `capacity`. `groups` integer[n]: rows of one example, which share a fold.
    `told` has the gradients of the absolute loss by the channels of privatized labels; `network` the settings of
    model mlp. `category_statistics`: models gbdt and trees also see what large categories say without labels
    (training/category_statistics.py).
    Raises InvalidTable (no rows, no usable column), InvalidInput (model, PyTorch missing), InvalidLoss (unknown, or
    Poisson with a domain that has negative labels).
    """
    report = progress or (lambda _what, _share: None)
    if model not in MODELS:
        raise InvalidInput(f"There is no model '{model}'; choose one of {', '.join(MODELS)}.")
    if loss not in LOSSES:
        raise InvalidLoss(f"There is no training loss '{loss}'; choose one of {', '.join(LOSSES)}.")
    n = features.num_rows
    if n == 0 or labels.shape != (n,) or not np.all(np.isfinite(labels)):
        raise InvalidTable("Training needs at least one row, and one finite label for each row.")
    bounds = (float(domain.values[0]), float(domain.values[-1])) if domain is not None else None
    if loss == "poisson" and bounds is not None and bounds[0] < 0:
        raise InvalidLoss("The Poisson loss needs a domain without negative labels; use --loss squared.")
    spread = bounds[1] - bounds[0] if bounds is not None else math.inf
    ruled, weights = _judged(labels, noise_variance, spread)
    objective, notes, told = _objective(loss, ruled, told if model in TREES else None)
    if told is not None:
        signal = ruled.signal_share * ruled.label_variance
        ruled = choose_capacity(n, signal * (1.0 + told.noise), signal * told.noise)
    validate = capacity is None and (unbiased or ruled.noise_variance == 0.0) and objective != "absolute"
    chosen = capacity or ruled
    report("encoding features", 0.0)
    schema = FeatureSchema.learn(features, categorical=categorical, exclude=exclude)
    encoded = schema.encode(features)
    if model in TREES and category_statistics:
        report("statistics of categories", 0.02)
        schema, encoded = schema.with_statistics(encoded)
    sizes = category_sizes(schema)
    smooth = len(schema.number_names) - sum(statistic.trees_only for statistic in schema.statistics)
    limits = bounds or (0.0 if loss == "poisson" else float(labels.min()), float(labels.max()))
    body: Trees | Linear | Network | Ensemble
    cross: CrossFit | None = None
    with blas_threads(threads):
        if model == "gbdt" and validate and _enough(n, groups):
            body, effects, cross = fit_validated(
                encoded,
                labels,
                weights,
                Task(sizes, objective, limits, chosen, threads, smooth),
                groups,
                lambda what, share: report(what, 0.05 + 0.95 * share),
            )
        elif model == "mlp":
            effects = Effects(())
            body = fit_network(
                encoded,
                sizes,
                labels,
                weights,
                objective,
                chosen,
                limits,
                settings=network,
                unbiased=unbiased,
                groups=groups,
                threads=threads,
                progress=lambda what, share: report(what, 0.05 + 0.95 * share),
            )
            notes = (*notes, f"the network was trained for {body.epochs} epochs")
        else:
            body, effects = _single(
                encoded,
                labels,
                weights,
                Task(sizes, objective, limits, chosen, threads),
                model,
                told,
                lambda what, share: report(what, 0.05 + 0.95 * share),
            )
    mean = float(np.average(labels, weights=weights))
    left_out = tuple(f"column '{name}' was left out: {why}" for name, why in schema.left_out)
    trained = TrainedModel(
        kind=model,
        loss=loss,
        objective=objective,
        schema=schema,
        effects=effects,
        body=body,
        bounds=bounds,
        mean=mean if bounds is None else float(np.clip(mean, *bounds)),
        capacity=chosen,
        notes=(*notes, *left_out),
    )
    return trained, cross


def _model_alone(judged: Callable[P, tuple[TrainedModel, CrossFit | None]]) -> Callable[P, TrainedModel]:
    @functools.wraps(judged)
    def fit(*data: P.args, **options: P.kwargs) -> TrainedModel:
        return judged(*data, **options)[0]

    fit.__name__ = fit.__qualname__ = "fit"
    return fit


fit = _model_alone(fit_and_judge)  # the same arguments, the model alone


def _enough(rows: int, groups: npt.NDArray[np.integer] | None) -> bool:
    return (rows if groups is None else len(np.unique(groups))) >= SMALLEST


def _single(
    encoded: Encoded,
    labels: FloatArray,
    weights: FloatArray | None,
    task: Task,
    model: str,
    told: RowGradients | None,
    report: Progress,
) -> tuple[Trees | Linear, Effects]:
    """One model by the rule."""
    seen, effects = out_of_fold(
        encoded.codes, labels, task.sizes, lambda share: report("effects of categories", 0.1 * share)
    )

    def part(what: str, share: float) -> None:
        report(what, 0.1 + 0.9 * share)

    if model == "linear":
        return fit_linear(
            encoded, seen, task.sizes, labels, weights, task.loss, task.capacity, task.bounds, progress=part
        ), effects
    return fit_trees(
        TreeInput.of(encoded, seen, task.sizes),
        labels,
        weights,
        task.loss,
        task.capacity,
        task.bounds,
        told=told,
        threads=task.threads,
        progress=part,
    ), effects


def _judged(
    labels: FloatArray, noise_variance: float | FloatArray, spread: float
) -> tuple[Capacity, FloatArray | None]:
    """Capacity, and float64[n] weights of mean 1, inverse to signal + noise; None where all rows are alike.

    Rows of different noise say, weighted so, as much as rows of the one noise at which signal/(signal + noise) is their
    mean: messages add up, whatever each is worth.
    """
    noise = np.asarray(noise_variance, dtype=np.float64)
    n = len(labels)
    capacity = choose_capacity(n, float(np.var(labels)), float(noise.mean()), spread)
    if noise.ndim == 0 or np.ptp(noise) <= 1e-9 * max(float(noise.max()), 1e-300):
        return capacity, None
    signal = _signal(labels, noise) or capacity.signal_share * capacity.label_variance
    total = np.maximum(noise + signal, 1e-9 * float(noise.max()))
    if signal > 0.0:
        even = signal * (1.0 / float(np.mean(signal / total)) - 1.0)
        capacity = choose_capacity(n, signal + even, even, spread)
    weights = 1.0 / total
    return capacity, weights / weights.mean()


def _signal(labels: FloatArray, noise: FloatArray) -> float:
    """Variance of the labels without their noise, each noise level weighing by how well it tells; 0 if they do not."""
    levels, which = np.unique(noise, return_inverse=True)
    rows = np.bincount(which)
    means = np.bincount(which, labels) / rows
    variances = np.bincount(which, (labels - means[which]) ** 2) / rows
    told = rows / np.maximum(variances, 1e-300) ** 2  # the variance of a variance goes as its square over the rows
    return max(0.0, float(np.average(variances - levels, weights=told)))


def _objective(
    loss: str, capacity: Capacity, told: RowGradients | None
) -> tuple[str, tuple[str, ...], RowGradients | None]:
    """What is minimised in training, notes on it, and the gradients that are used for it."""
    share = capacity.signal_share
    if loss != "absolute" or capacity.noise_variance <= 0.0:
        return loss, (), None
    # as noisy as the mean's: then the median is worth having
    if told is not None and told.noise * share <= 1.0 - share:
        return loss, ("the absolute loss was trained on by its expected gradients under the channel",), told
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
