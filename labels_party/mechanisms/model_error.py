"""Expected model error, the mean squared error that a model trained on the corrected labels z has above one trained on
the labels y themselves. Bias does not average out over rows, noise does (DESIGN §4), and a model sees of either only
what the features let through. With b(y) = E[z | y] − y under the prior p, split into its mean, its part linear in y
(slope β), and the rest r(y), and with V = Var y and σ² the noise variance of z:

    error  =  (Σ p b)²  +  ½ β² V  +  ⅒ Σ p r²  +  σ² · P / n            P = 2 √n_eff,  n_eff = n · s

The mean of the bias shifts every prediction. Of its linear part counts as much as the features explain of the labels,
taken to be half. The rest, such as the steps between bins, mostly cancels among labels that the features do not tell
apart. P, the effective parameters, grows with the rows of noiseless labels that say as much, as in the features
party's capacity rule: s = 1 − σ²/(Var E[z | y] + σ²), but not below max(0.005, √(2/n)).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.channel import Channel
from shared.errors import InvalidMechanism

FloatArray = npt.NDArray[np.float64]

EXPLAINED = 0.5
REST = 0.1
PARAMETERS = 2.0
FLOOR = 0.005
RULE = (
    "excess squared error of a model = (mean bias)² + ½·(slope of the bias)²·Var y + ⅒·(rest of the bias)² "
    "+ noise variance·P/n, with P = 2·√(effective rows) parameters and features that explain half the labels' "
    "variance; an assumption for ranking, not a promise"
)


def model_error(channel: Channel, prior: FloatArray, n: int) -> dict[str, Any]:
    """The rule of this module for one channel, in squared label units, and its parts."""
    try:
        corrected = channel.debiased_outputs()
    except InvalidMechanism:
        corrected = channel.outputs
    y = channel.labels - float(prior @ channel.labels)  # centred, so that large labels lose no digits
    means, variances = channel.moments(np.asarray(corrected, np.float64) - float(prior @ channel.labels))
    bias = means - y
    variance, noise = float(prior @ (y * y)), float(prior @ variances)
    shift = float(prior @ bias)
    slope = float(prior @ (y * bias)) / variance if variance > 0 else 0.0
    rest = float(prior @ (bias - shift - slope * y) ** 2)
    signal = float(prior @ (means - float(prior @ means)) ** 2)
    share = max(signal / (signal + noise) if signal + noise > 0 else 1.0, min(1.0, max(FLOOR, math.sqrt(2.0 / n))))
    effective_rows = n * share
    parameters = PARAMETERS * math.sqrt(effective_rows)
    error = shift**2 + EXPLAINED * slope**2 * variance + REST * rest + noise * parameters / n
    return {
        "expected_model_error": error,
        "expected_bias_squared": float(prior @ (bias * bias)),
        "noise_variance": noise,
        "effective_rows": effective_rows,
        "effective_parameters": parameters,
        "learns_something": error < EXPLAINED * variance,
    }
