"""Gradients of the losses, written for corrected labels: they may be negative and are mostly noise.

The squared and the Poisson loss are affine in y up to a term without the prediction, so the gradient at a corrected
label is an unbiased estimate of the gradient at the true one; it must not be clipped. The bounds are on the score f
(the log of the prediction) and, from below, on the Hessian: without both a Poisson learner diverges.

Other losses need the distribution of a label, not its mean. R (m × k) with M R = I turns ℓ into Σ_y R[j, y]·ℓ(f, y),
whose expectation over the outputs j of a label is the label's own loss (Natarajan et al. 2013); if the channel outputs
bins only, M R gives the labels of a bin in the proportions of the prior. Entries of R are of either sign, and large.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from features_party.training.example_groups import ABSENT, ExampleGroups
from features_party.training.links import HESSIAN_FLOOR, Gradients, Link
from label_dp.channels.base import Channel, N
from label_dp.channels.rr import RRChannel
from label_dp.errors import InvalidMechanism

FloatArray = npt.NDArray[np.float64]

ROUNDED = 0.5  # of the standard deviation: a corner as sharp as for clean labels would only be noise
NODES = 257  # of predictions at which the gradients of a loss correction are tabulated
MOST_CELLS = 1 << 22  # outputs × labels of R
CONDITION = 1e6
LARGEST_INVERTED = 1000  # labels


def squared(score: FloatArray, labels: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return (f − z, 1), for any real z."""
    difference = score - labels
    return difference, np.ones_like(difference)


def smooth_absolute(width: float) -> Gradients:
    """Return gradients of |f − z| rounded within about `width` of its corner (pseudo-Huber), with a majorising
    Hessian."""

    def gradients(score: FloatArray, labels: FloatArray) -> tuple[FloatArray, FloatArray]:
        ratio = (score - labels) / width
        root = np.sqrt(1.0 + ratio * ratio)
        return width * ratio / root, 1.0 / root

    return gradients


@dataclass(frozen=True)
class LossCorrection:
    """Gradients of E|f − y| rounded as in `smooth_absolute`, for outputs instead of labels.

    `nodes` float64[g] are predictions, `slopes` float64[m, g] the gradient at each under each output, `curvature`
    float64[g] the majorising Hessian under the labels' estimated distribution; between nodes both are linear. `median`
    is the labels' estimated one, `noise` the variance that the channel adds to a gradient there, in units of its
    largest square, so that it compares with label noise over a variance of 1.
    """

    nodes: FloatArray
    slopes: FloatArray
    curvature: FloatArray
    median: float
    noise: float

    @classmethod
    def absolute(
        cls, channel: Channel, prior: FloatArray | None, shares: FloatArray, width: float | None = None
    ) -> LossCorrection:
        """Compute the correction for labels of `channel`, with `shares` float64[m] of the outputs in the message.

        `width` is as in `smooth_absolute`, by default ROUNDED of the labels' standard deviation. `prior` float64[k]
        (None: uniform) spreads a bin over its labels. Raises InvalidMechanism if the outputs do not identify the
        distribution of the labels, or the channel is too large.
        """
        recovered, y = inverse(channel, prior), channel.labels
        distribution = np.maximum(shares @ recovered, 0.0)
        distribution = distribution / distribution.sum() if distribution.any() else np.full(channel.k, 1.0 / channel.k)
        if width is None:
            centred = y - float(distribution @ y)
            width = max(ROUNDED * float(np.sqrt(distribution @ (centred * centred))), 1e-3 * float(np.ptp(y)))
        nodes = np.linspace(float(y[0]), float(y[-1]), NODES)
        ratio = (nodes[None, :] - y[:, None]) / width
        root = np.sqrt(1.0 + ratio * ratio)
        slopes = recovered @ (width * ratio / root)
        middle = int(np.searchsorted(np.cumsum(distribution), 0.5))
        _, variances = channel.moments(slopes[:, int(np.argmin(np.abs(nodes - y[middle])))])
        return cls(
            nodes, slopes, distribution @ (1.0 / root), float(y[middle]), float(distribution @ variances) / width**2
        )

    def gradients(self, score: FloatArray, outputs: npt.NDArray[np.integer]) -> tuple[FloatArray, FloatArray]:
        """Return gradients for scores float64[n] and the outputs integer[n] of the rows."""
        place = (np.clip(score, self.nodes[0], self.nodes[-1]) - self.nodes[0]) / (self.nodes[1] - self.nodes[0])
        left = np.minimum(place.astype(np.int64), len(self.nodes) - 2)
        share = place - left
        slope = (1.0 - share) * self.slopes[outputs, left] + share * self.slopes[outputs, left + 1]
        hessian = (1.0 - share) * self.curvature[left] + share * self.curvature[left + 1]
        return slope, np.maximum(hessian, HESSIAN_FLOOR)


class ChannelGradients(Protocol):
    """Gradients by the channels of n rows, called as `Gradients`.

    `link` is that of its scores; `start` is the score before anything is learned; `noise` is the variance that the
    channels add to a gradient there, in units of a label's own.
    """

    @property
    def link(self) -> Link | None: ...

    @property
    def start(self) -> float: ...

    @property
    def noise(self) -> float: ...

    def take(self, rows: slice | npt.NDArray[np.int64]) -> Self: ...

    def together(self, rows: ExampleGroups) -> ChannelGradients | None:
        """Merge to one row for each example; None if that is not possible."""

    def __call__(self, score: FloatArray, labels: FloatArray, /) -> tuple[FloatArray, FloatArray]: ...


@dataclass(frozen=True)
class RowGradients:
    """Loss corrections of the messages of n rows: `message` and `outputs` integer[n]."""

    corrections: tuple[LossCorrection, ...]
    message: npt.NDArray[np.integer]
    outputs: npt.NDArray[np.integer]

    link = None

    def take(self, rows: slice | npt.NDArray[np.int64]) -> RowGradients:
        return RowGradients(self.corrections, self.message[rows], self.outputs[rows])

    def together(self, rows: ExampleGroups) -> AveragedGradients:
        """Average to the gradient of least noise of each example."""
        shares, noise = rows.shares(self._noises[self.message]), self._noises[self.message]
        message, outputs, order = rows.columns(self.message, self.outputs, np.arange(len(self.message)))
        looks = [RowGradients(self.corrections, *np.maximum(at, 0)) for at in zip(message.T, outputs.T, strict=True)]
        by_look = np.where(order == ABSENT, 0.0, shares[order])
        return AveragedGradients(tuple(looks), by_look, float(np.mean(rows.sums(shares * shares * noise))))

    @property
    def _noises(self) -> FloatArray:
        return np.array([correction.noise for correction in self.corrections])

    def _average(self, figure: Callable[[LossCorrection], float]) -> float:
        often = np.bincount(self.message, minlength=len(self.corrections))
        return float(np.average([figure(c) for c in self.corrections], weights=often))

    @property
    def start(self) -> float:
        """The median."""
        return self._average(lambda c: c.median)

    @property
    def noise(self) -> float:
        return self._average(lambda c: c.noise)

    def __call__(self, score: FloatArray, _: FloatArray) -> tuple[FloatArray, FloatArray]:
        slope, hessian = np.empty(len(score)), np.empty(len(score))
        for at, correction in enumerate(self.corrections):
            here = self.message == at
            slope[here], hessian[here] = correction.gradients(score[here], self.outputs[here])
        return slope, hessian


@dataclass(frozen=True)
class AveragedGradients:
    """Averaged gradients of n examples with up to w outputs each: `looks` are their outputs in turn, `shares`
    float64[n, w]."""

    looks: tuple[RowGradients, ...]
    shares: FloatArray
    noise: float

    link = None

    def take(self, rows: slice | npt.NDArray[np.int64]) -> AveragedGradients:
        return AveragedGradients(tuple(look.take(rows) for look in self.looks), self.shares[rows], self.noise)

    def together(self, _: ExampleGroups) -> None:
        """Return None: the rows are merged already."""

    @property
    def start(self) -> float:
        """The median."""
        weights = self.shares.mean(axis=0)
        return float(np.average([look.start for look in self.looks], weights=weights))

    def __call__(self, score: FloatArray, labels: FloatArray) -> tuple[FloatArray, FloatArray]:
        slope, hessian = np.zeros(len(score)), np.zeros(len(score))
        for share, look in zip(self.shares.T, self.looks, strict=True):
            gradient = look(score, labels)
            slope += share * gradient[0]
            hessian += share * gradient[1]
        return slope, hessian


def inverse(channel: Channel, prior: FloatArray | None) -> FloatArray:
    """Return R float64[m, k], rows summing to 1: M R = I, or for bins the labels of y's bin by the prior.

    Raises InvalidMechanism if R does not exist or amplifies rounding, or the channel is too large.
    """
    if channel.k * channel.m > MOST_CELLS or channel.k < 2:
        raise InvalidMechanism("The channel is too large, or has one label only, for a correction of this loss.")
    if isinstance(channel, RRChannel) and channel.A > channel.B and channel.d > 1:
        p = np.full(channel.k, 1.0) if prior is None else prior + 1e-12 / channel.k
        inside = np.zeros((channel.d, channel.k))
        inside[channel.bins, np.arange(channel.k)] = p / np.add.reduceat(p, channel.boundaries[:-1])[channel.bins]
        return np.asarray((inside - channel.B / N * inside.sum(axis=0)) / ((channel.A - channel.B) / N), np.float64)
    if channel.m < channel.k or channel.k > LARGEST_INVERTED:
        raise InvalidMechanism(
            f"The {channel.m} outputs of this message's channel do not tell the distribution of {channel.k} labels."
        )
    rows = channel.rows(0, channel.k)
    root = np.sqrt(np.maximum(rows.mean(axis=0), 1e-300))
    left, singular, right = np.linalg.svd(rows / root, full_matrices=False)
    if singular[-1] * CONDITION < singular[0]:
        raise InvalidMechanism("This message's channel is too ill-conditioned to tell the distribution of its labels.")
    return np.asarray((right.T / singular) @ left.T / root[:, None], np.float64)
