"""The members of an ensemble and their sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from features_party.training.learner import FittedModel, ModelInput
from features_party.training.learners.additive import Additive
from features_party.training.learners.forward import Forward
from features_party.training.learners.trees import TreeInput, Trees

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Member:
    """Model with its `weight` in the sum.

    Trees with a `base` add to the score of that member instead of a constant; trees through the channel add to the
    distribution at its prediction.
    """

    name: str
    weight: float
    body: FittedModel
    base: int | None = None


def starting_score(base: Additive, score: FloatArray, log: bool, bounds: tuple[float, float]) -> FloatArray:
    """Return the starting score of trees on top of an additive model: its prediction, or its log for trees with a log
    link."""
    if log:
        assert base.link is not None
        return np.asarray(np.clip(score, base.link.low, base.link.high), np.float64)
    return np.clip(score if base.link is None else base.link.predictions(score), *bounds)


def moves(
    members: Sequence[Member], mean: float, bounds: tuple[float, float], inputs: ModelInput, threads: int = 1
) -> FloatArray:
    """Compute Σ weight·(prediction − mean), float64[n], each prediction clipped to `bounds` first."""
    total = np.zeros(len(inputs))
    scores = [m.body.score(inputs) if isinstance(m.body, Additive) else None for m in members]
    for member, score in zip(members, scores, strict=True):
        if member.weight == 0.0:
            continue
        if isinstance(member.body, Additive):
            assert score is not None
            predictions = member.body.linked(score)
        elif isinstance(member.body, Trees | Forward) and member.base is not None:
            under, below = members[member.base].body, scores[member.base]
            assert isinstance(under, Additive)
            assert below is not None
            start = starting_score(under, below, member.body.link is not None, bounds)
            predictions = member.body.outputs(inputs.once(TreeInput.of), threads, start)
        else:
            predictions = member.body.predict(inputs, threads)
        total += member.weight * (np.clip(predictions, *bounds) - mean)
    return total
