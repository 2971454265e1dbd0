"""Expected model error: the excess mean squared error of a model trained on privatized labels z over one trained on the
labels y themselves. Both parties use it: one to choose a randomizer, the other to choose the values of outputs.

Bias does not average out over rows, noise does, and either reaches a model only through the features. With b(y) = E[z |
y] − y under the prior p, split into its mean, its part linear in y (slope β), and the rest r(y), and with V = Var y and
σ² the noise variance of z:

    error  =  (Σ p b)²  +  ½ β² V  +  ⅒ Σ p r²  +  σ² · P / n              P = 1.5 √n_eff,  n_eff = n · s

If zero is the first label and more than half of the prior's mass, as for sums that are mostly no sale, 1{y > 0}
replaces y in the linear part (its slope β is of E[y | y > 0 or not], and V its variance): features predict who buys
better than how much. If a share q < ⅛ buys, both parts of the bias are multiplied by 8q: even knowing the chance p(x)
of each example explains only Var p/(q(1 − q)), 4q if the chances vary by twice their mean.

The mean of the bias shifts every prediction. Its linear part counts by the share of the labels that features explain,
taken to be half. The rest, such as the steps between bins or the tails lost to clipping, mostly cancels among labels
that the features do not distinguish. P, the effective parameters, grows with the equivalent number of noiseless rows,
as in the features party's capacity rule: s = 1 − σ²/(Var E[z | y] + σ²), but not below max(0.005, √(2/n)).

⅒ and 1.5 are fitted to trainings on real labels (census, retail and bike of the evaluation data): a ridge in one fixed
basis on clipped one bit of many widths, then the features party's validated ensembles, which need fewer parameters.
`make tables` measures the quality of choices by this rule (table "auto").
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from label_dp.channels.base import Channel

FloatArray = npt.NDArray[np.float64]

EXPLAINED = 0.5
REST = 0.1
PARAMETERS = 1.5
FLOOR = 0.005
MOSTLY = 0.5  # of the labels are zero: then features predict the others' values less well than whether they are zero
RARE = 8.0  # times the share of the others, if that is less than 1
RULE = (
    "excess squared error of a model = (mean bias)² + ½·(slope of the bias)²·Var y + ⅒·(rest of the bias)² "
    "+ noise variance·P/n, with P = 1.5·√(effective rows) parameters and features that explain half the labels' "
    "variance (of labels that are mostly zero, of whether they are); an assumption for ranking, not a promise"
)


SUMS = 3.9  # fitted with the power to bike, census and retail of the evaluation data (table "codes")
SUMS_POWER = 0.28


def sums_below(n: int, codes: int) -> float:
    """Return the ε below which a model of sums by a number of public codes errs less than one of a message.

    A message tells of every row, and a model of n rows learns more of it than sums hold; the noise of sums is that of
    cells, which n rows outweigh at a smaller ε. Each code takes its share of ε. A rule of thumb.
    """
    return SUMS * math.pow(n, -SUMS_POWER) / math.sqrt(max(codes / 8.0, 1.0))


def effective_parameters(signal: float, noise: float, n: int) -> tuple[float, float]:
    """Return (n_eff, P) for labels whose expectations vary by `signal`, with noise of variance `noise`."""
    share = signal / (signal + noise) if signal + noise > 0 else 1.0
    effective = n * max(share, min(1.0, max(FLOOR, math.sqrt(2.0 / n))))
    return effective, PARAMETERS * math.sqrt(effective)


@dataclass(frozen=True)
class FeatureSignal:
    """Feature signal: the part of labels that features are assumed to predict.

    `part` float64[k] has mean 0 and `variance` under the prior; features explain the share `explained` of it, and the
    share `rest` of the remainder of a label. The part is the label itself or, for labels that are mostly zero
    (`zero_apart`), their mean given whether they are zero.
    """

    part: FloatArray
    variance: float
    explained: float = EXPLAINED
    rest: float = REST
    zero_apart: bool = False

    @classmethod
    def of(cls, labels: FloatArray, prior: FloatArray) -> FeatureSignal:
        """Build the signal for labels and prior float64[k]."""
        y = labels - labels[0]  # so that large labels lose no digits
        y -= float(prior @ y)
        others = 1.0 - float(prior[0])
        if labels[0] != 0.0 or others >= MOSTLY or others <= 0.0:
            return cls(y, float(prior @ (y * y)))
        part = np.full(len(y), float(prior[1:] @ y[1:]) / others)
        part[0] = y[0]
        rare = min(1.0, RARE * others)
        return cls(part, float(prior @ (part * part)), EXPLAINED * rare, REST * rare, zero_apart=True)


def model_error(channel: Channel, prior: FloatArray, n: int, values: FloatArray) -> dict[str, float]:
    """Apply the rule of this module to one channel; returns the error, in squared label units, and its parts.

    `values` float64[m] is the value of each output (`label_dp.channels.correcting`).
    """
    centre = float(prior @ channel.labels)
    y = channel.labels - centre  # so that large labels lose no digits
    means, variances = channel.moments(np.asarray(values, np.float64) - centre)
    bias = means - y
    feature_signal, noise = FeatureSignal.of(channel.labels, prior), float(prior @ variances)
    shift = float(prior @ bias)
    slope = (
        float(prior @ (feature_signal.part * bias)) / feature_signal.variance if feature_signal.variance > 0 else 0.0
    )
    rest = float(prior @ (bias - shift - slope * feature_signal.part) ** 2)
    signal = float(prior @ (means - float(prior @ means)) ** 2)
    effective_rows, parameters = effective_parameters(signal, noise, n)
    error = (
        shift**2
        + feature_signal.explained * slope**2 * feature_signal.variance
        + feature_signal.rest * rest
        + noise * parameters / n
    )
    nothing = feature_signal.explained * feature_signal.variance + feature_signal.rest * float(
        prior @ (y - feature_signal.part) ** 2
    )
    return {
        "expected_model_error": error,
        "expected_bias_squared": float(prior @ (bias * bias)),
        "noise_variance": noise,
        "effective_rows": effective_rows,
        "effective_parameters": parameters,
        "learns_something": error < nothing,  # that of predicting the mean for every row
    }
