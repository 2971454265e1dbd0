"""Undoing the noise: from a channel's outputs to labels whose expectation is (nearly) the true label. Free of ε.

- `none`: the outputs as drawn. Smallest label error and, for randomized response on bins, a bias towards the mean.
- `debias`: the channel's corrected outputs, E[v′ | y] = y, or the mean of y's bin under the private prior.
- `auto`: `debias` where the channel allows it, otherwise `none`; the reason is part of the result.

Messages are corrected one by one, each by its own channel; a model may be trained on several.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shared.channel import Channel
from shared.errors import InvalidInput, InvalidMechanism

FloatArray = npt.NDArray[np.float64]

CORRECTIONS = ("auto", "none", "debias")


@dataclass(frozen=True)
class Correction:
    """What each output of one channel stands for.

    `raw`, `corrected` float64[m]; `noise_variance` is the variance of the corrected label around its expectation for
    an example, averaged over the labels (in squared label units); `unbiased` says whether E[corrected | y] = y.
    """

    applied: str
    why: str
    raw: FloatArray
    corrected: FloatArray
    noise_variance: float
    unbiased: bool

    def as_json(self) -> dict[str, object]:
        return {
            "applied": self.applied,
            "why": self.why,
            "noise_variance": self.noise_variance,
            "unbiased": self.unbiased,
        }


def correct(
    channel: Channel, how: str = "auto", prior: FloatArray | None = None, shares: FloatArray | None = None
) -> Correction:
    """The correction `how` for `channel`.

    For the noise variance: `prior` is the message's float64[k], None where it came without one; then `shares`
    float64[m], how often each output occurs in the message, stands in for it.
    Raises InvalidInput for an unknown correction, InvalidMechanism where `debias` was asked for and there is none.
    """
    if how not in CORRECTIONS:
        raise InvalidInput(f"There is no correction '{how}'; choose one of {', '.join(CORRECTIONS)}.")
    raw = np.asarray(channel.outputs, dtype=np.float64)
    if how == "none":
        return _uncorrected(channel, raw, noise_variance(channel, raw, prior, shares), "asked for")
    try:
        corrected = np.asarray(channel.debiased_outputs(), dtype=np.float64)
    except InvalidMechanism as error:
        if how == "debias":
            raise
        return _uncorrected(channel, raw, noise_variance(channel, raw, prior, shares), error.detail)
    if channel.unbiased:
        why = "the corrected label has the true label as its expectation"
    else:
        why = "the corrected label has nearly the true label as its expectation (the mean of its bin, or it clipped)"
    if how == "debias":
        why = f"asked for; {why}"
    noise = noise_variance(channel, corrected, prior, shares)
    return Correction("debias", why, raw, corrected, noise, channel.unbiased)


def _uncorrected(channel: Channel, raw: FloatArray, noise: float, why: str) -> Correction:
    # an unbiased channel's outputs are their own correction
    unbiased = channel.unbiased and np.array_equal(_corrected_or_nothing(channel), raw)
    return Correction("none", why, raw, raw, noise, bool(unbiased))


def _corrected_or_nothing(channel: Channel) -> FloatArray:
    try:
        return np.asarray(channel.debiased_outputs(), dtype=np.float64)
    except InvalidMechanism:
        return np.empty(0)


def noise_variance(
    channel: Channel, values: FloatArray, prior: FloatArray | None = None, shares: FloatArray | None = None
) -> float:
    """Average over the labels of Var[values[Z] | y], values float64[m].

    With a prior float64[k] it is Σ_y p_y Var[values[Z] | y]. Without one, the message's own `shares` float64[m] give
    the mean and the total variance V of the values; of V, the labels' part is taken to be (b − mean)(mean − a)/3, where
    [a, b] is the range of E[values[Z] | y]: the variance of a Beta distribution of that mean which is even where the
    mean is central. The rest is noise, between the least and the largest that any label has. With neither, uniform.
    """
    means, variances = channel.moments(values)
    if prior is not None:
        if prior.shape != (channel.k,):
            raise InvalidMechanism("The prior of the message does not have one probability per label of its domain.")
        return float(prior @ variances)
    if shares is None:
        return float(variances.mean())
    centre = float(values.mean())
    centred, means = values - centre, means - centre
    mean = float(shares @ centred)
    total = float(shares @ (centred * centred)) - mean * mean
    between = (float(means.max()) - mean) * (mean - float(means.min())) / 3.0
    return float(np.clip(total - max(between, 0.0), variances.min(), variances.max()))
