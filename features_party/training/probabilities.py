"""Metrics of predictions as probabilities of the larger of two label values, with 95 % intervals. Costs no ε.

All metrics use y in {0, 1}, predictions f in [0, 1] and g with E[g | y] = y: y itself, or an unbiased channel's label
estimate (`holdout.identify`). Since y² = y,

    Brier score   (f − y)²                            has the expectation of  f² − 2fg + g
    log loss      −y·log f − (1 − y)·log(1 − f)       is that of              −log(1 − f) − g·logit(f)

for every channel, whatever the labels' distribution. f is cut into [10⁻⁶, 1 − 10⁻⁶] for the logarithms: a probability
of 0 that comes true would cost ∞. AUC: `ranking`; calibration slope: `calibration`. Both divide by estimates, so they
count as identified only if the estimated numbers of ones and of zeros are at least four of their standard errors (about
16 true ones and zeros). `tests/simulation/test_probability_coverage.py` measures the coverage of the intervals.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from features_party.training.calibration import LEAST, equal_groups, logits, slope
from features_party.training.intervals import NO_FOLDS, FloatArray, Folds, Groups, Interval, interval, rate
from features_party.training.ranking import auc

GROUPS = 10
MIN_EXAMPLES = 30  # below it a normal interval is not valid
CLEAR = 4.0
NAMES = ("positive_rate", "brier", "log_loss", "constant_log_loss", "auc", "calibration")
UNCLEAR = (
    "not identified: the estimated number of {} is below four of its standard errors, so that dividing by it would say "
    "nothing; take more rows, or a message of a larger ε"
)
NO_SLOPE = "not identified: the predictions do not differ, or the labels are too noisy for a finite slope to fit"


@dataclass(frozen=True)
class Group:
    """Rows of neighbouring predictions: their number, mean prediction and mean label."""

    rows: int
    predicted: float
    observed: Interval


@dataclass(frozen=True)
class Calibration:
    """Calibration: `in_the_large` is mean label less mean prediction. `slope` is 1 if calibrated; None with a
    `slope_why` if unknown."""

    in_the_large: Interval
    slope: Interval | None
    slope_why: str
    groups: tuple[Group, ...]


@dataclass(frozen=True)
class Probabilities:
    """Metrics of labels 0 and 1; `constant_log_loss` is that of a constant prediction for every row. `auc` is None if
    it is not identified, and `auc_why` gives the reason."""

    positive_rate: Interval
    brier: Interval
    log_loss: Interval
    constant_log_loss: Interval
    auc: Interval | None
    auc_why: str
    calibration: Calibration


def judge(
    predictions: FloatArray,
    constants: float | FloatArray,
    labels: FloatArray,
    examples: Groups,
    ends: tuple[float, float] = (0.0, 1.0),
    folds: Folds = NO_FOLDS,
) -> Probabilities | str:
    """Judge the predictions of N rows against constants, or return why there is no estimate (fewer than 30 examples).

    Takes predictions float64[N], the constant (or float64[N]) that they are compared with, labels (or g) float64[N],
    and the example integer[N] of each; rows of one example share a label, so they are clustered. `ends` are the two
    labels: all is mapped to 0 and 1, and predictions are cut there. `folds` describes how predictions are out of fold.
    """
    numbers, group = np.unique(examples, return_inverse=True)
    if len(numbers) < MIN_EXAMPLES:
        return f"not estimated: {len(numbers)} examples are too few for an interval, which needs {MIN_EXAMPLES}"
    stretch, worst = folds.stretch, -float(np.log(LEAST))
    width = ends[1] - ends[0]
    f, g = np.clip((predictions - ends[0]) / width, 0.0, 1.0), (labels - ends[0]) / width
    c = np.broadcast_to((np.asarray(constants, np.float64) - ends[0]) / width, g.shape)
    positive = rate(g, group)
    why = _why_unclear(positive)
    return Probabilities(
        positive_rate=positive,
        brier=interval(f * f - 2.0 * f * g + g, group, stretch).within(0.0, 1.0),
        log_loss=interval(_log_losses(f, g), group, stretch).within(0.0, worst),
        constant_log_loss=interval(_log_losses(c, g), group).within(0.0, worst),
        auc=None if why else auc(f, g, group, stretch),
        auc_why=why or "identified",
        calibration=_calibration(f, g, group, stretch, why),
    )


def probability_members(found: Probabilities | str) -> dict[str, object]:
    """Return members of a JSON object. If `found` is a reason, all are null with the reason beside them as `…_why`."""
    if isinstance(found, Probabilities):
        return asdict(found)
    return dict.fromkeys(NAMES) | {f"{name}_why": found for name in NAMES}


def _log_losses(f: FloatArray, g: FloatArray) -> FloatArray:
    return np.asarray(-np.log1p(-np.clip(f, LEAST, 1.0 - LEAST)) - g * logits(f), np.float64)


def _why_unclear(positive: Interval) -> str:
    """Return which class is too rare to divide by; empty for none."""
    clear = CLEAR * positive.standard_error
    if positive.estimate <= clear:
        return UNCLEAR.format("ones")
    return UNCLEAR.format("zeros") if 1.0 - positive.estimate <= clear else ""


def _calibration(f: FloatArray, g: FloatArray, group: Groups, stretch: float, why: str) -> Calibration:
    number = equal_groups(f, GROUPS)
    estimate = None if why else slope(f, g, group, stretch)
    rows = [np.flatnonzero(number == at) for at in range(int(number.max()) + 1)]
    return Calibration(
        in_the_large=interval(g - f, group, stretch).within(-1.0, 1.0),
        slope=estimate,
        slope_why=why or ("identified" if estimate is not None else NO_SLOPE),
        groups=tuple(
            Group(len(at), float(f[at].mean()), rate(g[at], np.unique(group[at], return_inverse=True)[1]))
            for at in rows
        ),
    )
