"""The log loss of labels of two values, trained through the channels: the learner models the noise.

A score f gives the second label the probability p = 1/(1 + e^(−f)). A channel M turns that into the probability L =
p·M[1, o] + (1 − p)·M[0, o] of the output o, and −log L of the observed output is minimised: the likelihood of the
message itself, for any channel. No output is corrected, so no gradient is larger than that of a true label, and rows of
several messages count by the information of their channels. The Hessian is its expectation over the outputs, the Fisher
information p²(1 − p)²·Σ_o (M[1, o] − M[0, o])²/L of a row on its score. Everything here is post-processing: it costs no
ε.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from features_party.training.capacity import Capacity, choose_capacity
from features_party.training.example_groups import ExampleGroups, joint_channels
from features_party.training.links import HESSIAN_FLOOR, LogisticScore, straight_line
from label_dp.channels.base import Channel
from label_dp.errors import InvalidLoss

FloatArray = npt.NDArray[np.float64]

NODES = np.linspace(-16.0, 16.0, 641)  # scores at which the information of a channel is tabulated
ROUNDS = 60  # halvings of [0, 1]


@dataclass(frozen=True)
class RowLikelihood:
    """Likelihood of n rows: `given` are float64[2, m], the channels of their messages; `message` and `outputs`
    integer[n].

    Gradients and Hessians are in units of an average row's information, so that a Hessian of 1 is one ordinary row.
    """

    given: tuple[FloatArray, ...]
    message: npt.NDArray[np.integer]
    outputs: npt.NDArray[np.integer]
    link: LogisticScore

    @classmethod
    def through(
        cls, channels: Sequence[Channel], message: npt.NDArray[np.integer], outputs: npt.NDArray[np.integer]
    ) -> RowLikelihood:
        """Build the likelihood of privatized labels. Raises InvalidLoss for channels of another number of labels than
        two."""
        if any(channel.k != 2 for channel in channels):
            raise InvalidLoss("The log loss needs a label domain of two values, such as 0:1.")
        first, second = channels[0].labels.tolist()
        given = tuple(np.asarray(channel.rows(0, 2), np.float64) for channel in channels)
        return cls(given, message, outputs, LogisticScore.between(first, second))

    @classmethod
    def certain(cls, labels: FloatArray, ends: tuple[float, float]) -> RowLikelihood:
        """Build the likelihood of true labels float64[n], each one of `ends`. Raises InvalidLoss for any other."""
        second = labels == ends[1]
        if not np.all(second | (labels == ends[0])):
            raise InvalidLoss("The log loss needs labels of two values, those of the domain.")
        return cls((np.eye(2),), np.zeros(len(labels), np.int8), second.astype(np.int8), LogisticScore.between(*ends))

    def take(self, rows: slice | npt.NDArray[np.int64]) -> RowLikelihood:
        return RowLikelihood(self.given, self.message[rows], self.outputs[rows], self.link)

    def together(self, rows: ExampleGroups) -> RowLikelihood | None:
        """Merge to one row for each example; None if the product of its channels would be too large."""
        joint = joint_channels(self.given, self.message, self.outputs, rows)
        return None if joint is None else RowLikelihood(*joint, self.link)

    @cached_property
    def _counts(self) -> list[FloatArray]:
        """Count each output of each message."""
        return [
            np.bincount(self.outputs[self.message == at], minlength=channel.shape[1]).astype(np.float64)
            for at, channel in enumerate(self.given)
        ]

    def _information(self, p: FloatArray, at: int) -> FloatArray:
        """Return the information of one row of message `at` on p itself, for p float64[g] inside (0, 1)."""
        zero, one = self.given[at]
        likely = p[:, None] * one + (1.0 - p[:, None]) * zero
        return np.asarray(((one - zero) ** 2 / np.maximum(likely, 1e-300)).sum(axis=1), np.float64)

    @cached_property
    def _estimate(self) -> tuple[float, float]:
        """Most likely share of the second label, and its standard error."""
        low, high = 0.0, 1.0
        for _ in range(ROUNDS):
            middle = (low + high) / 2
            slope = 0.0
            for (zero, one), counts in zip(self.given, self._counts, strict=True):
                slope += float(counts @ ((one - zero) / np.maximum(middle * one + (1.0 - middle) * zero, 1e-300)))
            low, high = (middle, high) if slope > 0.0 else (low, middle)
        inside = np.clip(np.array([(low + high) / 2]), 1e-9, 1.0 - 1e-9)
        whole = sum(float(self._information(inside, at)[0] * c.sum()) for at, c in enumerate(self._counts))
        return float(inside[0]), float(min(1.0 / np.sqrt(max(whole, 4.0)), 0.5))

    @cached_property
    def share(self) -> float:
        """Most likely share of the second label, kept a standard error away from 0 and 1, the resolution of the data.

        For a true share anywhere from 0 on, that is about the posterior mean.
        """
        likeliest, error = self._estimate
        return float(np.clip(likeliest, error, 1.0 - error))

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the card."""
        likeliest, error = self._estimate
        if error < likeliest < 1.0 - error:
            return ()
        end = self.link.second if likeliest < 0.5 else self.link.first
        return (
            f"the outputs do not tell the share of the label {end:g} from 0; one standard error of it, {error:.2g}, is "
            "taken for it",
        )

    @cached_property
    def information(self) -> float:
        """Information of an average row on its score before anything is learned."""
        p = np.array([self.share])
        parts = [float(self._information(p, at)[0]) * float(c.sum()) for at, c in enumerate(self._counts)]
        return max(sum(parts) / len(self.outputs) * self.variance**2, 1e-300)

    @property
    def variance(self) -> float:
        """Variance of a label that is 0 or 1 with this share."""
        return self.share * (1.0 - self.share)

    @property
    def start(self) -> float:
        return float(np.log(self.share / (1.0 - self.share)))

    @property
    def noise(self) -> float:
        return max(self.variance / self.information - 1.0, 0.0)

    def capacity(self) -> Capacity:
        """Choose the capacity by the rule for labels of this noise.

        A leaf has at least four times the information of one certain choice between two equally likely labels, and its
        λ is as much; for rare labels that is many rows.
        """
        signal = self.variance
        ruled = choose_capacity(len(self.outputs), signal * (1.0 + self.noise), signal * self.noise)
        one = 1.0 / self.information
        return ruled.model_copy(update={"rows_per_leaf": one, "leaf_penalty": one})

    @cached_property
    def _tables(self) -> list[FloatArray]:
        """Information on a score at NODES, for each message, in units of an average row's."""
        p = self.link.shares(NODES)
        return [self._information(p, at) * (p * (1.0 - p)) ** 2 / self.information for at in range(len(self.given))]

    @cached_property
    def rows(self) -> tuple[FloatArray, FloatArray]:
        """Probability of each row's output under the first and under the second label."""
        zero, one = np.empty(len(self.outputs)), np.empty(len(self.outputs))
        for at, channel in enumerate(self.given):
            here = self.message == at
            zero[here], one[here] = channel[:, self.outputs[here]]
        return zero, one

    def losses(self, score: FloatArray) -> FloatArray:
        """Return −log of the probability of each row's output, in nats."""
        p, (zero, one) = self.link.shares(score), self.rows
        return np.asarray(-np.log(np.maximum(p * one + (1.0 - p) * zero, 1e-300)), np.float64)

    def straightened(self, score: FloatArray) -> LogisticScore:
        """Fit the link with the most likely slope and shift to scores float64[n] by models of other rows.

        The slope is shrunk by its own error (James and Stein 1961): without signal it is 0, and the mean is predicted.
        """
        slope, shift = straight_line(self, score, score, self.information)
        return replace(self.link, slope=slope, shift=shift if slope > 0.0 else self.start)

    def __call__(self, score: FloatArray, _: FloatArray) -> tuple[FloatArray, FloatArray]:
        p = self.link.shares(score)
        zero, one = self.rows
        likely = np.maximum(p * one + (1.0 - p) * zero, 1e-300)
        gradient = (zero - one) / likely * (p * (1.0 - p)) / self.information
        if len(self._tables) == 1:
            hessian = np.interp(score, NODES, self._tables[0])
        else:
            hessian = np.empty(len(score))
            for at, table in enumerate(self._tables):
                here = self.message == at
                hessian[here] = np.interp(score[here], NODES, table)
        return gradient, np.maximum(hessian, HESSIAN_FLOOR)
