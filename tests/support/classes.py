"""Labels of several classes that features say something of, and the outputs of a channel for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from features_party.training.class_likelihood import ClassLikelihood
from features_party.training.fitting import Examples
from label_dp.channels.base import Channel
from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.mechanisms.rr_with_prior import rr_channel, rr_with_prior_channel
from labels_party.mechanisms.subset_selection import subset_channel
from tests.support.messages import draw

FloatArray = npt.NDArray[np.float64]


def k_ary(k: int, epsilon: str) -> Channel:
    return rr_channel(Domain.parse(f"0:{k - 1}"), Epsilon.parse(epsilon))


def kept(shares: FloatArray, epsilon: str) -> Channel:
    """The top-k kind, whose outputs are the likelier labels alone."""
    return rr_with_prior_channel(Domain.parse(f"0:{len(shares) - 1}"), shares, Epsilon.parse(epsilon))


def by_subsets(k: int, epsilon: str) -> Channel:
    """Subsets of the classes, of which there are more than classes."""
    return subset_channel(Domain.parse(f"0:{k - 1}"), Epsilon.parse(epsilon))


@dataclass(frozen=True)
class ClassWorld:
    """n examples: `truth` float64[n, k] are the probabilities that the labels float64[n] are drawn from."""

    features: pa.Table
    truth: FloatArray
    labels: FloatArray

    @classmethod
    def of(cls, n: int, k: int, seed: int, strength: float = 1.5, rare: int | None = None) -> ClassWorld:
        """Of three numbers two say something; the classes are not equally frequent, and one may be `rare`."""
        rng, fixed = np.random.default_rng(seed), np.random.default_rng(11)
        x = rng.normal(size=(n, 3))
        weights, start = strength * fixed.normal(size=(3, k)), 0.5 * fixed.normal(size=k)
        weights[2] = 0.0
        if rare is not None:
            start[rare] = -6.0
        truth = np.exp(x @ weights + start)
        truth /= truth.sum(axis=1, keepdims=True)
        labels = (np.cumsum(truth, axis=1) < rng.random(n)[:, None]).sum(axis=1)
        return cls(pa.table({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2]}), truth, np.minimum(labels, k - 1).astype(float))

    @property
    def shares(self) -> FloatArray:
        return np.asarray(self.truth.mean(axis=0))

    def through(
        self, channel: Channel, seed: int = 0, believed: Channel | None = None, prior: FloatArray | None = None
    ) -> Examples:
        """As a training sees them, where outputs of `channel` are taken for those of `believed`."""
        outputs, told = draw(channel, self.labels, seed), believed or channel
        likelihood = ClassLikelihood.through([told], np.zeros(len(outputs), np.int8), outputs, channel.domain, prior)
        return Examples(self.features, self.labels, 1.0, channel.domain, told=likelihood)

    def excess(self, predictions: FloatArray) -> float:
        """Log loss above that of the true probabilities."""
        return float(np.mean(np.sum(self.truth * np.log(self.truth / np.maximum(predictions, 1e-9)), axis=1)))
