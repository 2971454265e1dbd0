"""Correction of the noise: a label estimate for each output of a message's channel. Costs no ε.

- `none`: the outputs as drawn. Smallest label error and, for randomized response on bins, a bias towards the mean.
- `debias`: E[v | y] = y, or the mean of y's bin, or as near y as this channel allows; without regard to the noise.
- `posterior`: E[y | output] under the message's prior. The best guess of each label, biased towards the mean.
- `auto`: the best input for a model by the rule of `label_dp.channels.correcting`: an unbiased label if it costs
  little, else the blend of `posterior` and `debias` that suits the noise and the number of rows, without a bias of the
  mean.

Each message is corrected by its own channel; a model may be trained on several messages.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from label_dp.channels.base import Channel
from label_dp.channels.correcting import Solver, best_outputs, bias_and_noise, debiased, estimated_prior
from label_dp.errors import InvalidInput, InvalidMechanism

FloatArray = npt.NDArray[np.float64]

EXACT = 1e-9  # of the span of values and labels: a smaller bias counts as none
CORRECTIONS = ("auto", "none", "debias", "posterior")
NEARLY = 0.02  # of the labels' variance: a smaller squared bias is negligible


@dataclass(frozen=True)
class Correction:
    """Label estimates for the outputs of one channel.

    `raw`, `corrected` float64[m]. `noise_variance` is the variance of the corrected label around its expectation for an
    example, averaged over the labels (in squared label units). `unbiased` says whether E[corrected | y] = y exactly;
    `residual_bias` is the root mean square deviation from it over the prior (without one: over the domain), in label
    units; `nearly_unbiased` says whether that is negligible beside the labels' spread. `rho` is the weight of bias
    against noise of `auto`'s regularised values, None for other corrections.
    """

    applied: str
    why: str
    raw: FloatArray
    corrected: FloatArray
    noise_variance: float
    unbiased: bool
    residual_bias: float = 0.0
    nearly_unbiased: bool = False
    rho: float | None = None

    @property
    def comparable(self) -> bool:
        """Whether models can be compared on these labels: unbiased, nearly, or with a bias without mean and slope."""
        return self.nearly_unbiased or self.rho is not None

    def as_json(self) -> dict[str, object]:
        return {
            "applied": self.applied,
            "why": self.why,
            "noise_variance": self.noise_variance,
            "unbiased": self.unbiased,
            "residual_bias": self.residual_bias,
            "rho": self.rho,
        }


def correct(
    channel: Channel,
    how: str = "auto",
    prior: FloatArray | None = None,
    shares: FloatArray | None = None,
    rows: int | None = None,
) -> Correction:
    """Compute the correction `how` for `channel`.

    `prior` is the message's float64[k], None if it came without one; then `shares` float64[m], the frequency of each
    output in the message, replaces it. `rows` is the message's number of rows; without it `auto` does not weigh noise.
    Raises InvalidInput for an unknown correction, and InvalidMechanism for a prior of another domain or if `debias` is
    requested although the outputs say nothing about the label.
    """
    check_correction(how)
    if prior is not None and prior.shape != (channel.k,):
        raise InvalidMechanism("The prior of the message does not have one probability per label of its domain.")
    raw = np.asarray(channel.outputs, dtype=np.float64)
    values, applied, why, rho = _values(channel, how, raw, prior, shares, rows)
    p = np.full(channel.k, 1.0 / channel.k) if prior is None else prior
    bias, _ = bias_and_noise(channel, values)
    worst, residual = float(np.max(np.abs(bias))), math.sqrt(float(p @ (bias * bias)))
    unbiased = worst <= EXACT * float(np.ptp(np.concatenate([values, channel.labels])))
    spread = channel.labels - float(p @ channel.labels)
    return Correction(
        applied=applied,
        why=f"asked for; {why}" if how != "auto" else why,
        raw=raw,
        corrected=values,
        noise_variance=noise_variance(channel, values, prior, shares),
        unbiased=unbiased,
        residual_bias=0.0 if unbiased else residual,
        nearly_unbiased=unbiased or residual**2 <= NEARLY * float(p @ (spread * spread)),
        rho=rho,
    )


def _values(
    channel: Channel,
    how: str,
    raw: FloatArray,
    prior: FloatArray | None,
    shares: FloatArray | None,
    rows: int | None,
) -> tuple[FloatArray, str, str, float | None]:
    """Return (values, correction applied, reason, ρ)."""
    if how == "none":
        return raw, "none", "the outputs as they were drawn", None
    if how == "posterior":
        values = Solver.of(channel, _supposed(channel, prior, shares)).regularised(0.0)
        return values, "posterior", "the expected label of those that have this output, which leans to the mean", None
    if how == "auto" and prior is not None and rows is not None:
        values, rho = best_outputs(channel, prior, rows)
        if rho is not None:
            return values, "regularised", f"bias weighs {1.0 + rho:.3g} times as much as noise, for {rows:,} rows", rho
    try:
        values = debiased(channel, _supposed(channel, prior, shares) if how == "debias" else prior)
    except InvalidMechanism as error:
        if how == "debias":
            raise
        return raw, "none", error.detail, None
    if channel.unbiased:
        return values, "debias", "the corrected label has the true label as its expectation", None
    why = "the corrected label has nearly the true label as its expectation (the mean of its bin, or it clipped)"
    return values, "debias", why, None


def _supposed(channel: Channel, prior: FloatArray | None, shares: FloatArray | None) -> FloatArray | None:
    """Return the prior; without one, the estimate from the message's own outputs; with neither, None for uniform."""
    return prior if prior is not None or shares is None else estimated_prior(channel, shares)


def check_correction(how: str) -> None:
    """Raise InvalidInput for an unknown name."""
    if how not in CORRECTIONS:
        raise InvalidInput(f"There is no correction '{how}'; choose one of {', '.join(CORRECTIONS)}.")


def noise_variance(
    channel: Channel, values: FloatArray, prior: FloatArray | None = None, shares: FloatArray | None = None
) -> float:
    """Average Var[values[Z] | y] over the labels, for values float64[m].

    With a prior float64[k] it is Σ_y p_y Var[values[Z] | y]. Without one, the message's own `shares` float64[m] give
    the mean and the total variance V of the values. The labels' part of V is taken to be (b − mean)(mean − a)/3, where
    [a, b] is the range of E[values[Z] | y]: the variance of a Beta distribution of that mean, uniform if the mean is
    central. The rest is noise, between the smallest and the largest of any label. With neither, labels are uniform.
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
