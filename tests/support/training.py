"""Training by keywords: what tests and benchmarks vary is spelled in one call, and sorted here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from features_party.training import fitting
from features_party.training.draws import Draws, by_position
from features_party.training.fitting import Examples, Recipe
from features_party.training.learner import CrossFit
from features_party.training.learners import additive, crossfit, gaussian, staged
from features_party.training.model import TrainedModel
from label_dp.documents.signing import SigningKey

OF_EXAMPLES = {field.name for field in fields(Examples)}
OF_RECIPE = {field.name for field in fields(Recipe)}


def fit_and_judge(features: pa.Table, labels: npt.NDArray[Any], **options: Any) -> tuple[TrainedModel, CrossFit | None]:
    """`fitting.fit`, with the members of Examples and Recipe, `threads` and `progress` as keywords."""
    examples = Examples(features, labels, **{k: v for k, v in options.items() if k in OF_EXAMPLES})
    recipe = Recipe(**{k: v for k, v in options.items() if k in OF_RECIPE})
    return fitting.fit(examples, recipe, **{k: v for k, v in options.items() if k not in OF_EXAMPLES | OF_RECIPE})


def fit(features: pa.Table, labels: npt.NDArray[Any], **options: Any) -> TrainedModel:
    """The model alone."""
    return fit_and_judge(features, labels, **options)[0]


def draws(rows: int, key: float = 0.0) -> Draws:
    """Of rows that are examples of their own."""
    return by_position(np.arange(rows), np.array([key]))


@contextmanager
def quick_validation() -> Iterator[None]:
    """Models of every member from two folds, one number of trees, few pairs and a short search for a kernel: for tests
    of what a model is written as, not of what it has learned."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crossfit, "assign_folds", lambda draws, *_: np.arange(len(draws), dtype=np.int8) % 2)
        patch.setattr(staged, "STAGES", (1.0,))
        patch.setattr(crossfit, "BAGS", 2)
        patch.setattr(additive, "MOST_PAIRS", 3)
        patch.setattr(gaussian, "SEARCH_FEATURES", 3)
        patch.setattr(gaussian, "SWEEPS", 1)
        yield


KEY = SigningKey.generate()  # signs the models of tests


def bare_card(model: TrainedModel) -> dict[str, Any]:
    """Of a model of no message: every member that a card has."""
    return {
        "created": "now",
        "calibration": None,
        "seconds": 1.0,
        "kind": model.kind,
        "loss": model.loss,
        "objective": model.objective,
        "label": "label",
        "domain": {"range": "0:10"},
        "domain_text": "0:10",
        "messages": [],
        "epsilon": [],
        "epsilon_rule": "a rule",
        "capacity": model.capacity.as_json(),
        "trees": model.body.count,
        "members": model.body.members(),
        "features": [],
        "statistics": [],
        "crossings": [],
        "importance": {},
        "report": {"rows": 1, "corrected_mean": model.mean, "error_estimate": None, "error_estimate_why": "no message"},
        "notes": [],
    }
