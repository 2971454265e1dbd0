"""RPWithPrior: Liu & Huang, "RPWithPrior: Label Differential Privacy in Regression", 2026 (arXiv 2601.22625).

A label is moved into an interval [A₁, A₂] and sent as a number of [A₁ − δ, A₂ + δ], e^ε times as likely within δ of it
as anywhere else. The interval is the one for which an output is most often within δ of its label under the prior: the
largest prior mass of [A₁, A₂] over 2δ + e^(−ε)·(A₂ − A₁). δ is a parameter; where the interval is shorter than 2δ, δ
becomes half of it and the interval is sought again. Models are trained on the outputs as they are drawn.

Restated from the abstract and from the notebooks that the authors link (liuhaixias1/Response_privacy); the article
itself was not at hand. Their notebooks put raw labels into the histogram that stands for the prior, so that what they
run has no ε. The private form here: counts on public cells with Laplace noise at a share of ε, as this service
estimates its own priors, and what is left of ε for the labels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

REACHES = (0.025, 0.1, 0.2, 0.3, 0.5)  # δ over the range of the labels; the notebooks have 0.14 to 0.4


@dataclass(frozen=True)
class Interval:
    """The channel: outputs of [low − reach, high + reach] for labels moved into [low, high]."""

    low: float
    high: float
    reach: float
    epsilon: float

    @property
    def level(self) -> float:
        """Density farther than `reach` from the label."""
        return 1.0 / (2.0 * self.reach * math.exp(self.epsilon) + self.high - self.low)

    def density(self, labels: FloatArray, outputs: FloatArray) -> FloatArray:
        """float64[n, m] of outputs float64[m] for labels float64[n]."""
        near = np.abs(outputs[None, :] - np.clip(labels, self.low, self.high)[:, None]) <= self.reach
        inside = (outputs >= self.low - self.reach) & (outputs <= self.high + self.reach)
        return np.where(inside[None, :], np.where(near, math.exp(self.epsilon), 1.0) * self.level, 0.0)

    def draw(self, labels: FloatArray, rng: np.random.Generator) -> FloatArray:
        """float64[n]: one output for each label."""
        inner = np.clip(labels, self.low, self.high)
        near = rng.random(len(inner)) < 2.0 * self.reach * math.exp(self.epsilon) * self.level
        close = inner + rng.uniform(-self.reach, self.reach, len(inner))
        at = rng.uniform(self.low, self.high, len(inner))  # the rest is as long as the interval, on both sides
        return np.where(near, close, at + np.where(at < inner, -self.reach, self.reach))


def most_often_near(values: FloatArray, prior: FloatArray, reach: float, epsilon: float) -> Interval:
    """The interval for the prior float64[k] of the labels `values` float64[k].

    The mass of a value is spread up to the middles between it and its neighbours. Mass and length are linear in each
    end between two of these, so their ratio is largest at a pair of them; O(k²).
    """
    nodes = np.concatenate([values[:1], (values[1:] + values[:-1]) / 2.0, values[-1:]])
    below = np.concatenate([[0.0], np.cumsum(prior)])
    mass, length = below[None, :] - below[:, None], nodes[None, :] - nodes[:, None]
    while True:
        ratio = np.where(length > 0.0, mass / (2.0 * reach + math.exp(-epsilon) * np.maximum(length, 0.0)), -1.0)
        first, last = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
        low, high = float(nodes[first]), float(nodes[last])
        if high - low >= 2.0 * reach:
            return Interval(low, high, reach, epsilon)
        reach = (high - low) / 2.0
