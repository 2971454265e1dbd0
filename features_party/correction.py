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
CHUNK_CELLS = 1 << 20


@dataclass(frozen=True)
class Correction:
    """What each output of one channel stands for.

    `raw`, `corrected` float64[m]; `noise_variance` is the variance of the corrected label around its expectation for
    an example, averaged over the prior (in squared label units); `unbiased` says whether E[corrected | y] = y.
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


def correct(channel: Channel, how: str = "auto", prior: FloatArray | None = None) -> Correction:
    """The correction `how` for `channel`; `prior` is float64[k] or None where only the manifest is known.

    Raises InvalidInput for an unknown correction, InvalidMechanism where `debias` was asked for and there is none.
    """
    if how not in CORRECTIONS:
        raise InvalidInput(f"There is no correction '{how}'; choose one of {', '.join(CORRECTIONS)}.")
    raw = np.asarray(channel.outputs, dtype=np.float64)
    if how == "none":
        return _uncorrected(channel, raw, prior, "asked for")
    try:
        corrected = np.asarray(channel.debiased_outputs(), dtype=np.float64)
    except InvalidMechanism as error:
        if how == "debias":
            raise
        return _uncorrected(channel, raw, prior, error.detail)
    if channel.unbiased:
        why = "the corrected label has the true label as its expectation"
    else:
        why = "the corrected label has nearly the true label as its expectation (the mean of its bin, or it clipped)"
    if how == "debias":
        why = f"asked for; {why}"
    return Correction("debias", why, raw, corrected, noise_variance(channel, corrected, prior), channel.unbiased)


def _uncorrected(channel: Channel, raw: FloatArray, prior: FloatArray | None, why: str) -> Correction:
    # an unbiased channel's outputs are their own correction
    unbiased = channel.unbiased and np.array_equal(_corrected_or_nothing(channel), raw)
    return Correction("none", why, raw, raw, noise_variance(channel, raw, prior), bool(unbiased))


def _corrected_or_nothing(channel: Channel) -> FloatArray:
    try:
        return np.asarray(channel.debiased_outputs(), dtype=np.float64)
    except InvalidMechanism:
        return np.empty(0)


def noise_variance(channel: Channel, values: FloatArray, prior: FloatArray | None = None) -> float:
    """Σ_y p_y Var[values[Z] | y] with values float64[m], prior float64[k] (None: uniform over the domain)."""
    p = np.full(channel.k, 1.0 / channel.k) if prior is None else prior
    if p.shape != (channel.k,):
        raise InvalidMechanism("The prior of the message does not have one probability per label of its domain.")
    centred = values - float(values.mean())
    total, step = 0.0, max(1, CHUNK_CELLS // channel.m)
    for start in range(0, channel.k, step):
        stop = min(start + step, channel.k)
        if not np.any(p[start:stop]):
            continue
        rows = channel.rows(start, stop)
        mean = rows @ centred
        total += float(p[start:stop] @ (rows @ (centred * centred) - mean * mean))
    return max(total, 0.0)
