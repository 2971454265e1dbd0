"""Expected model error: the mean squared error that a model trained on privatized labels z has above one trained on the
labels y themselves. Both parties judge by it: one which randomizer to take, the other which value an output stands for.

Bias does not average out over rows, noise does (DESIGN §4), and a model sees of either only what the features let
through. With b(y) = E[z | y] − y under the prior p, split into its mean, its part linear in y (slope β), and the rest
r(y), and with V = Var y and σ² the noise variance of z:

    error  =  (Σ p b)²  +  ½ β² V  +  ⅒ Σ p r²  +  σ² · P / n              P = 1.5 √n_eff,  n_eff = n · s

The mean of the bias shifts every prediction. Of its linear part counts as much as the features explain of the labels,
taken to be half. The rest, such as the steps between bins or what clipping takes from the tails, mostly cancels among
labels that the features do not tell apart. P, the effective parameters, grows with the rows of noiseless labels that
say as much, as in the features party's capacity rule: s = 1 − σ²/(Var E[z | y] + σ²), but not below max(0.005, √(2/n)).

⅒ and 1.5 are fitted to trainings on real labels (census, retail and bike of the evaluation data): a ridge in one fixed
basis on clipped one bit of many widths, then the features party's validated ensembles, which need fewer parameters.
`make tables` shows how well following them does (table "auto").
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.channels.base import Channel

FloatArray = npt.NDArray[np.float64]

EXPLAINED = 0.5
REST = 0.1
PARAMETERS = 1.5
FLOOR = 0.005
RULE = (
    "excess squared error of a model = (mean bias)² + ½·(slope of the bias)²·Var y + ⅒·(rest of the bias)² "
    "+ noise variance·P/n, with P = 1.5·√(effective rows) parameters and features that explain half the labels' "
    "variance; an assumption for ranking, not a promise"
)


def effective_parameters(signal: float, noise: float, n: int) -> tuple[float, float]:
    """(n_eff, P) for labels whose expectations vary by `signal`, with noise of variance `noise`."""
    share = signal / (signal + noise) if signal + noise > 0 else 1.0
    effective = n * max(share, min(1.0, max(FLOOR, math.sqrt(2.0 / n))))
    return effective, PARAMETERS * math.sqrt(effective)


def model_error(channel: Channel, prior: FloatArray, n: int, values: FloatArray) -> dict[str, Any]:
    """The rule of this module for one channel, in squared label units, and its parts.

    `values` float64[m] is what each output stands for (`shared.channels.correcting`).
    """
    centre = float(prior @ channel.labels)
    y = channel.labels - centre  # so that large labels lose no digits
    means, variances = channel.moments(np.asarray(values, np.float64) - centre)
    bias = means - y
    variance, noise = float(prior @ (y * y)), float(prior @ variances)
    shift = float(prior @ bias)
    slope = float(prior @ (y * bias)) / variance if variance > 0 else 0.0
    rest = float(prior @ (bias - shift - slope * y) ** 2)
    signal = float(prior @ (means - float(prior @ means)) ** 2)
    effective_rows, parameters = effective_parameters(signal, noise, n)
    error = shift**2 + EXPLAINED * slope**2 * variance + REST * rest + noise * parameters / n
    return {
        "expected_model_error": error,
        "expected_bias_squared": float(prior @ (bias * bias)),
        "noise_variance": noise,
        "effective_rows": effective_rows,
        "effective_parameters": parameters,
        "learns_something": error < EXPLAINED * variance,
    }
