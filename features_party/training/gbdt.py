"""Gradient-boosted trees on numbers and effects of categories: xgboost `hist` with our own gradients and capacity."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from features_party.training.capacity import Capacity
from features_party.training.encoding import Encoded, FeatureSchema, Float32
from features_party.training.objectives import (
    LARGEST_STEP,
    Gradients,
    PoissonScore,
    RowGradients,
    smooth_absolute,
)
from shared.errors import InvalidFile
from shared.service.cli import Progress

FloatArray = npt.NDArray[np.float64]

ONE_HOT = 64  # values up to which a category is split one value at a time
MIN_ROWS = 4  # fewer rows than this cannot be split into two leaves that mean anything


def _xgboost() -> Any:
    # before OpenMP is loaded: threads that spin while they wait made training 50 times slower on busy cores
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import xgboost

    return xgboost


@dataclass(frozen=True)
class TreeInput:
    """What the trees see: float32[n, p + c], numbers, then categories; `kinds` is xgboost's "q" or "c" per column.

    Small categories go in as they are and are split one value at a time; of large ones the trees see the effects.
    """

    matrix: Float32
    kinds: list[str]

    @classmethod
    def of(cls, encoded: Encoded, effects: Float32, sizes: list[int]) -> TreeInput:
        """From codes int32[n, c], effects float32[n, c] and the number of values of each category."""
        small = [size <= ONE_HOT for size in sizes]
        columns = np.where(small, np.where(encoded.codes < 0, np.nan, encoded.codes), effects).astype(np.float32)
        kinds = ["q"] * encoded.numbers.shape[1] + ["c" if one_by_one else "q" for one_by_one in small]
        return cls(np.hstack([encoded.numbers, columns]) if sizes else encoded.numbers, kinds)

    def as_dmatrix(
        self,
        labels: FloatArray | None,
        threads: int,
        base: FloatArray | None = None,
        weights: FloatArray | None = None,
    ) -> Any:
        return _xgboost().DMatrix(
            self.matrix,
            None if labels is None else labels.astype(np.float32),
            weight=None if weights is None else weights.astype(np.float32),
            base_margin=None if base is None else base.astype(np.float32),
            feature_types=self.kinds,
            enable_categorical="c" in self.kinds,
            nthread=threads,
        )


@dataclass(frozen=True)
class Trees:
    """A trained booster in xgboost's own JSON, and the link between its score and a prediction."""

    booster: Any
    link: PoissonScore | None

    @property
    def count(self) -> int:
        """How many trees there are."""
        return int(self.booster.num_boosted_rounds())

    def predict(self, seen: TreeInput, threads: int = 1, base: FloatArray | None = None, rounds: int = 0) -> FloatArray:
        """float64[n], unclipped. `base` float64[n] is the score that the trees were trained on top of, if they were;
        `rounds` takes the first trees only."""
        if not len(seen.matrix):
            return np.empty(0)
        data = seen.as_dmatrix(None, threads, base)
        trees = (0, min(rounds, self.count))
        score = self.booster.predict(data, output_margin=True, iteration_range=trees)
        if self.link is not None:
            return self.link.predictions(score)
        return np.asarray(score, dtype=np.float64)

    def as_json(self) -> dict[str, Any]:
        link = None if self.link is None else {"low": self.link.low, "high": self.link.high, "scale": self.link.scale}
        return {"link": link, "xgboost": json.loads(bytes(self.booster.save_raw("json")))}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Trees:
        """Inverse of `as_json`. Raises InvalidFile for what xgboost does not accept."""
        xgb = _xgboost()

        link = PoissonScore(**data["link"]) if data["link"] is not None else None
        booster = xgb.Booster()
        try:
            booster.load_model(bytearray(json.dumps(data["xgboost"]).encode()))
        except xgb.core.XGBoostError:
            raise InvalidFile("The trees of the model are damaged; train it again or restore the folder.") from None
        return cls(booster, link)


def fit_trees(
    seen: TreeInput,
    labels: FloatArray,
    weights: FloatArray | None,
    loss: str,
    capacity: Capacity,
    bounds: tuple[float, float],
    *,
    base: FloatArray | None = None,
    told: RowGradients | None = None,
    seed: int = 0,
    threads: int,
    progress: Progress,
) -> Trees:
    """Trees for n rows and labels float64[n]; `loss` is squared, absolute or poisson. Deterministic: `seed` says which
    rows and columns each tree sees.

    They add to the score `base` float64[n] (the log of a prediction for poisson), or to a constant. `told` has the
    gradients of the absolute loss of privatized labels; it comes without a base.
    """
    xgb = _xgboost()

    constant = float(np.average(labels, weights=weights))
    link: PoissonScore | None = None
    gradients: Gradients | None = None
    if loss == "poisson":
        link = PoissonScore.around(constant, *bounds)
        gradients, constant = link.gradients, link.base()
    elif told is not None:
        gradients, constant = told, told.median
    elif loss == "absolute":
        spread = math.sqrt(capacity.label_variance) or 1.0
        gradients, constant = smooth_absolute(0.1 * spread), float(np.median(labels))

    def objective(score: npt.NDArray[np.float32], _: Any) -> tuple[FloatArray, FloatArray]:
        assert gradients is not None
        gradient, hessian = gradients(score.astype(np.float64), labels)
        return (gradient, hessian) if weights is None else (gradient * weights, hessian * weights)

    rounds = capacity.rounds if len(labels) >= MIN_ROWS and seen.matrix.shape[1] else 0
    parameters = {
        "tree_method": "hist",
        "max_depth": capacity.depth,
        "eta": capacity.learning_rate,
        "min_child_weight": capacity.rows_per_leaf,
        "reg_lambda": capacity.leaf_penalty,
        "subsample": capacity.subsample,
        "colsample_bytree": capacity.columns_per_tree,
        "max_bin": capacity.max_bins,
        "max_cat_to_onehot": ONE_HOT + 1,
        "max_delta_step": LARGEST_STEP if link is not None else 0.0,
        "base_score": constant,
        "objective": "reg:squarederror",
        "disable_default_eval_metric": True,
        "nthread": threads,
        "seed": seed,
        "verbosity": 0,
    }
    from xgboost.callback import TrainingCallback

    # the squared loss is the same for any labels, and XGBoost's own is quicker
    own = gradients is None
    data = seen.as_dmatrix(labels, threads, base, weights if own else None)

    class Report(TrainingCallback):
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            progress(f"tree {epoch + 1} of {rounds}", (epoch + 1) / rounds)
            return False

    booster = xgb.train(parameters, data, num_boost_round=rounds, obj=None if own else objective, callbacks=[Report()])
    return Trees(booster, link)


def importance(trees: Trees, schema: FeatureSchema) -> dict[str, float]:
    """Share of the total gain by feature, largest first: what the model looks at."""
    names = [*schema.number_names, *(column.name for column in schema.categories)]
    gain = trees.booster.get_score(importance_type="total_gain")
    total = sum(gain.values()) or 1.0
    shares = {names[int(key[1:])]: float(value) / total for key, value in gain.items()}
    return dict(sorted(shares.items(), key=lambda item: -item[1]))
