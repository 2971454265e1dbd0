"""The error of a model, estimated from privatized labels that it was not trained on. Costs no ε.

For one example with true label y and prediction f, (f − y)² = f² − 2f·y + y². Functions g, h of the output z with
E[g(z) | y] = y and E[h(z) | y] = y² for every y of the domain (`holdout.identify`) turn it into f² − 2f·g(z) + h(z),
whose expectation is exactly the error, whatever the labels' distribution. If only g exists, the gain over a constant
prediction c is identified, (c − y)² − (f − y)² = c² − f² − 2(c − f)·y. A g with a bias b(y) changes its expectation by
2E[(f − c)·b], at most 2·√(E(f − c)²·E b²), which widens the interval on either side.

With out-of-fold predictions this is the mean error of the models of the folds, which saw (folds − 1)/folds of the rows
each; the final model saw all and is usually a little better. Its own error varies with the rows that it learned from,
which the rows' spread does not show: the standard error is therefore stretched by √(1 + folds/(folds − 1)) (Nadeau &
Bengio 2003), or by √(1 + 1/(folds − 1)) if one fold was enough. Intervals extend to the better side by `pessimism`, the
cost of the missing rows by the common rule (`label_dp.channels.model_error`).
`tests/simulation/test_final_error_coverage.py` and `make soak PARTS=error_intervals` measure how often they cover the
final model's error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import numpy as np
import numpy.typing as npt

from features_party.training.calibration import equal_groups
from features_party.training.draws import Draws, dealt
from features_party.training.intervals import NO_FOLDS, Folds, Interval, interval
from features_party.training.probabilities import GROUPS, MIN_EXAMPLES, Group, Probabilities, probability_members
from label_dp.channels.model_error import effective_parameters

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

HELD_OUT = 5  # one row in five
MIN_ROWS = 1000


@dataclass(frozen=True)
class ErrorEstimate:
    """Squared errors over the true labels of `rows` rows.

    `mse` and `constant_mse` are None if only their difference is identified; then `mse_why` gives the reason.
    `probabilities` are metrics for labels of two values, or the reason for their absence. `reliability` is the mean
    label by groups of neighbouring predictions, empty if rows are too few.
    """

    rows: int
    mse: Interval | None
    constant_mse: Interval | None
    mse_below_constant: Interval
    mse_why: str
    probabilities: Probabilities | str | None = None
    reliability: tuple[Group, ...] = ()

    def as_json(self) -> dict[str, object]:
        members = asdict(self)
        del members["probabilities"]
        if not isinstance(self.probabilities, str | None):
            del members["reliability"]  # their calibration has the same groups
        return members | ({} if self.probabilities is None else probability_members(self.probabilities))

    def as_card(self) -> dict[str, object]:
        """Return the members for a model's card, with the gain over the constant and its interval, which every estimate
        has, first."""
        gain = self.mse_below_constant
        return self.as_json() | {"mse_below_constant": gain.estimate, "low": gain.low, "high": gain.high}


@dataclass(frozen=True)
class Identified:
    """Unbiased functions of outputs for y and y²: per row, or per output of a channel.

    `first` float64[·] has E = y − centre. `second` float64[·] has E = (y − centre)² to within `slack`, or is None with
    a reason.
    """

    centre: float
    first: FloatArray
    second: FloatArray | None
    slack: float
    why: str
    noise: float = 0.0  # the variance of `first` around its expectation for an example
    bias: float = 0.0  # of `first`, as a root mean square over the labels, in their units

    def about(self, centre: float) -> Identified:
        """Move to another centre: (y − c)² = (y − centre)² + 2(centre − c)(y − centre) + (centre − c)²."""
        by = self.centre - centre
        second = None if self.second is None else self.second + 2.0 * by * self.first + by * by
        return replace(self, centre=centre, first=self.first + by, second=second)


def estimate(
    predictions: FloatArray,
    constants: float | FloatArray,
    known: Identified,
    examples: npt.NDArray[np.integer],
    folds: Folds = NO_FOLDS,
) -> ErrorEstimate:
    """Estimate the error of N predictions float64[N], from the constant each is compared with and the label functions
    of its output.

    Rows of one example (same number in `examples` integer[N]) share its label, so the standard errors cluster them.
    `folds` describes how the predictions are out of fold.
    """
    stretch = folds.stretch
    f, c = predictions - known.centre, np.asarray(constants, np.float64) - known.centre
    g, h = known.first, known.second
    _, group = np.unique(examples, return_inverse=True)
    late = pessimism(g, known.noise, folds)
    # Cauchy-Schwarz: holds for any dependence of the bias on the predictions
    hidden = 2.0 * known.bias * math.sqrt(float(np.mean((c - f) ** 2)))
    gain = interval(c * c - f * f - 2.0 * (c - f) * g, group, stretch, hidden).reaching(late)
    groups = _reliability(predictions, known, group)
    if h is None:
        return ErrorEstimate(len(f), None, None, gain, known.why, reliability=groups)
    mse = interval(f * f - 2.0 * f * g + h, group, stretch, known.slack).reaching(-late).of_loss
    constant = interval(c * c - 2.0 * c * g + h, group, 1.0, known.slack).of_loss
    return ErrorEstimate(len(f), mse, constant, gain, known.why, reliability=groups)


def _reliability(predictions: FloatArray, labels: Identified, group: IntArray) -> tuple[Group, ...]:
    """Average the predictions and g + centre over groups of neighbouring predictions.

    A bias of root mean square b over all labels is at most b/√s over a share s of the rows, which widens an interval on
    either side.
    """
    n = len(predictions)
    count = min(GROUPS, n // MIN_EXAMPLES)
    if count < 2:
        return ()
    number, groups = equal_groups(predictions, count), []
    for at in (np.flatnonzero(number == each) for each in range(int(number.max()) + 1)):
        examples = np.unique(group[at], return_inverse=True)[1]
        slack = labels.bias / math.sqrt(len(at) / n)
        mean = interval(labels.first[at] + labels.centre, examples, slack=slack)
        groups.append(Group(len(at), float(predictions[at].mean()), mean))
    return tuple(groups)


def pessimism(labels: FloatArray, noise: float, folds: Folds) -> float:
    """Estimate by how much models of (folds − 1)/folds of n rows err more than one of all rows.

    By the common rule the excess squared error is noise·P/n with P ∝ √n; 0 below two folds. The noise of labels
    float64[·] is a variance.
    """
    n, count = folds.whole(len(labels)), folds.count
    if count < 2 or n < 2:
        return 0.0
    signal = max(float(np.var(labels)) - noise, 0.0)
    _, parameters = effective_parameters(signal, noise, n)
    excess = min(noise * parameters / n, signal)  # a model without information predicts the mean
    return excess * (math.sqrt(count / (count - 1)) - 1.0)


def held_out(
    draws: Draws,
    fit_and_predict: Callable[[IntArray, IntArray], tuple[FloatArray, float | FloatArray]],
) -> tuple[IntArray, FloatArray, float | FloatArray] | None:
    """Return (rows held out int64[h], their predictions, the constant), or None below 1000 rows.

    Rows of equal `draws` uint64[n] stay together (one example with two labels). `fit_and_predict(train, held)` gives
    predictions for `held` and the constant.
    """
    if len(draws) < MIN_ROWS:
        return None
    side = dealt(draws, HELD_OUT, "estimate") == 0
    train, test = np.flatnonzero(~side), np.flatnonzero(side)
    if not len(train) or not len(test):
        return None
    predictions, constant = fit_and_predict(train, test)
    return test, predictions, constant
