"""Metrics of predicted probabilities of classes, with 95 % intervals. Costs no ε.

All metrics use predictions f, float64[k] for each row, that sum to 1, and g with E[g | y] = the indicator of y: the
indicator itself, or the row of R that an output selects, where R is the inverse of the channel (M R = 1).

    accuracy          the indicator at the likeliest class of f   has the expectation of  g there
    log loss          −log f_y                                    is that of              −Σ_c g_c·log f_c
    macro AUC         the mean over classes of the AUC of f_c against the rest, from g_c (`ranking.py`)

f is cut to 10⁻⁶ from below for the logarithms. An AUC divides by the number of rows of its class, so a class counts
only if its estimated number, and that of the rest, are at least four of their standard errors; `macro_auc_classes` is
the number of such classes. `tests/simulation/test_class_coverage.py` measures the coverage of the intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from features_party.training.calibration import LEAST
from features_party.training.intervals import NO_FOLDS, FloatArray, Folds, Groups, Interval, interval, rate
from features_party.training.objectives import inverse
from features_party.training.probabilities import CLEAR, MIN_EXAMPLES
from features_party.training.ranking import influences, macro_auc
from label_dp.channels.base import Channel
from label_dp.errors import InvalidMechanism

NAMES = (
    "accuracy",
    "constant_accuracy",
    "log_loss",
    "constant_log_loss",
    "log_loss_below_constant",
    "macro_auc",
)
EXACT = 1e-9  # largest deviation of M R from 1
NO_CLASS = (
    "not identified: the estimated number of each class is below four of its standard errors, so that dividing by it "
    "would say nothing; take more rows, or a message of a larger ε"
)


@dataclass(frozen=True)
class ClassMetrics:
    """Metrics of `rows` rows. `constant_…` are those of predicting the class shares for every row.

    `log_loss_below_constant` is the model's gain over them. `macro_auc` is None if no class is identified; then
    `macro_auc_why` gives the reason.
    """

    rows: int
    accuracy: Interval
    constant_accuracy: Interval
    log_loss: Interval
    constant_log_loss: Interval
    log_loss_below_constant: Interval
    macro_auc: Interval | None
    macro_auc_why: str
    macro_auc_classes: int

    def as_card(self) -> dict[str, object]:
        """Return the members for a model's card."""
        return asdict(self)


def judge_classes(
    predictions: FloatArray, constants: FloatArray, indicators: FloatArray, examples: Groups, folds: Folds = NO_FOLDS
) -> ClassMetrics | str:
    """Judge the predictions of N rows against constant class shares, or return why no estimate exists (fewer than 30
    examples).

    Takes predictions float64[N, k], the class shares float64[k] (or [N, k]) to compare with, indicators (or g)
    float64[N, k], and the example integer[N] of each row; rows of one example are clustered. `folds` describes how
    predictions are out of fold.
    """
    numbers, group = np.unique(examples, return_inverse=True)
    if len(numbers) < MIN_EXAMPLES:
        return f"not estimated: {len(numbers)} examples are too few for an interval, which needs {MIN_EXAMPLES}"
    stretch, worst, g = folds.stretch, -float(np.log(LEAST)), indicators
    c = np.broadcast_to(constants, g.shape)
    at = np.arange(len(g))
    own, constant_losses = _log_losses(predictions, g), _log_losses(c, g)
    auc, counted = _macro_auc(predictions, g, group, stretch)
    return ClassMetrics(
        rows=len(g),
        accuracy=rate(g[at, predictions.argmax(axis=1)], group, stretch),
        constant_accuracy=rate(g[at, c.argmax(axis=1)], group),
        log_loss=interval(own, group, stretch).within(0.0, worst),
        constant_log_loss=interval(constant_losses, group).within(0.0, worst),
        log_loss_below_constant=interval(constant_losses - own, group, stretch).within(-worst, worst),
        macro_auc=auc,
        macro_auc_why="identified" if auc is not None else NO_CLASS,
        macro_auc_classes=counted,
    )


def class_members(found: ClassMetrics | str) -> dict[str, object]:
    """Return members of a JSON object. If `found` is a reason, all are null with the reason beside them as `…_why`."""
    if isinstance(found, ClassMetrics):
        return asdict(found)
    return dict.fromkeys(NAMES) | {f"{name}_why": found for name in NAMES} | {"macro_auc_classes": 0}


def indicators_of(channel: Channel) -> FloatArray | str:
    """Return float64[m, k], an unbiased indicator of the label for each output; or a reason if labels share their
    outputs, or nearly."""
    try:
        rows = inverse(channel, None)
        if float(np.max(np.abs(channel.rows(0, channel.k) @ rows - np.eye(channel.k)))) <= EXACT:
            return rows
    except InvalidMechanism:
        pass
    return (
        f"not identified: this message's channel ({channel.kind}, {channel.m} outputs for {channel.k} labels) does not "
        "tell all classes apart, so that a worse model could look better; take a hold-out message with the mechanism rr"
    )


def told_indicators(
    channels: Sequence[Channel], message: npt.NDArray[np.integer], outputs: npt.NDArray[np.integer]
) -> FloatArray | str:
    """Return float64[N, k] for the message (number into `channels`) and output of each of N rows, or the reason why it
    does not exist."""
    indicators = np.empty((len(outputs), channels[0].k))
    for number, channel in enumerate(channels):
        one = indicators_of(channel)
        if isinstance(one, str):
            return one
        here = message == number
        indicators[here] = one[outputs[here]]
    return indicators


def _log_losses(f: FloatArray, g: FloatArray) -> FloatArray:
    return np.asarray(-np.einsum("ij,ij->i", g, np.log(np.maximum(f, LEAST))), np.float64)


def _macro_auc(f: FloatArray, g: FloatArray, group: Groups, stretch: float) -> tuple[Interval | None, int]:
    """Return (the mean over the classes with enough rows, how many these are)."""
    thetas, influence, rarest = [], np.zeros(len(g)), float(len(g))
    for at in range(g.shape[1]):
        share = rate(g[:, at], group)
        less = min(share.estimate, 1.0 - share.estimate)
        if less <= CLEAR * share.standard_error:
            continue
        theta, own = influences(f[:, at], g[:, at], group)
        thetas.append(theta)
        influence += own
        rarest = min(rarest, less * len(g))
    if not thetas:
        return None, 0
    return macro_auc(np.array(thetas), influence / len(thetas), group, rarest, stretch), len(thetas)
