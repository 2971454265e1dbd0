"""The log loss of labels of k classes, trained through the channels: the learner sees the noise.

Scores f (one for each class) say that a label is y with probability p_y = e^(f_y) / Σ e^f. A channel M turns that into
the probability L_o = Σ_y p_y·M[y, o] of the output o, and −log L of what was seen is minimised. With r_y = p_y·M[y, o]/
L_o, what the output makes of p, the gradient on f_y is p_y − r_y. The Hessian is the diagonal of its expectation over
the outputs, Fisher's information p_y²·(Σ_o M[y, o]²/L_o − 1) of a row on that score. Nothing has to be inverted, so
channels count that leave labels out; and rows of several messages count for what their channels let them say. For two
classes all is that of `likelihood.py`. Everything here is post-processing: it is free.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from features_party.training.capacity import Capacity, choose_capacity
from features_party.training.example_groups import ExampleGroups, joint_channels
from features_party.training.links import HESSIAN_FLOOR
from features_party.training.softmax import softmax
from label_dp.channels.base import Channel
from label_dp.domain import Domain
from label_dp.errors import InvalidLoss

FloatArray = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.floating]
IntArray = npt.NDArray[np.integer]

ROUNDS, SETTLED = 5000, 1e-10  # of the search for the likeliest shares
HALF = 0.5  # a label of each class that was not seen (Krichevsky & Trofimov 1981): no share is 0
LEAST_TOLD = 1e-9
EVEN = 0.01  # of a prior that is estimated, and may be 0 where labels are
MOST_TREES, FEWEST_ROUNDS, LARGEST_RATE = 4000, 20, 0.3


@dataclass(frozen=True)
class ClassLikelihood:
    """Of n rows: `given` are float64[k, m], the channels of their messages; `message` and `outputs` integer[n].

    Gradients and Hessians are in units of an average row's information on an average score.
    """

    given: tuple[FloatArray, ...]
    message: IntArray
    outputs: IntArray
    prior: FloatArray

    @classmethod
    def through(
        cls,
        channels: Sequence[Channel],
        message: IntArray,
        outputs: IntArray,
        domain: Domain,
        prior: FloatArray | None = None,
    ) -> ClassLikelihood:
        """`prior` float64[k] (None: uniform) decides what no output tells, such as the shares of labels that a channel
        leaves out. Raises InvalidLoss for a channel of another domain than `domain`."""
        if any(channel.domain != domain for channel in channels):
            raise InvalidLoss(
                "Classes need messages whose channels take the whole label domain, and one of these clipped its labels "
                "to a part of it; use another loss."
            )
        even = np.full(domain.k, 1.0 / domain.k)
        mixed = even if prior is None else (1.0 - EVEN) * prior + EVEN * even
        return cls(tuple(np.asarray(c.rows(0, c.k), np.float64) for c in channels), message, outputs, mixed)

    @classmethod
    def certain(cls, labels: FloatArray, domain: Domain) -> ClassLikelihood:
        """Of true labels float64[n], values of `domain`. Raises InvalidLoss for any other."""
        place, outside = domain.index(labels)
        if np.any(outside) or np.any(domain.values[place] != labels):
            raise InvalidLoss("The log loss needs labels that are values of the domain.")
        return cls((np.eye(domain.k),), np.zeros(len(labels), np.int8), place, np.full(domain.k, 1.0 / domain.k))

    def take(self, rows: slice | npt.NDArray[np.int64]) -> ClassLikelihood:
        return ClassLikelihood(self.given, self.message[rows], self.outputs[rows], self.prior)

    def together(self, rows: ExampleGroups) -> ClassLikelihood | None:
        """With one row for each example; None where the product of its channels would be too large."""
        joint = joint_channels(self.given, self.message, self.outputs, rows)
        return None if joint is None else ClassLikelihood(*joint, self.prior)

    @property
    def k(self) -> int:
        return len(self.given[0])

    @cached_property
    def _counts(self) -> list[FloatArray]:
        """How often each output of each message was seen."""
        return [
            np.bincount(self.outputs[self.message == at], minlength=given.shape[1]).astype(np.float64)
            for at, given in enumerate(self.given)
        ]

    def _averaged(self, p: FloatArray) -> FloatArray:
        """float64[k]: Σ_o M[y, o]²/q_o − 1 with q the outputs of labels with shares p; the average of the rows."""
        found = np.zeros(self.k)
        for given, counts in zip(self.given, self._counts, strict=True):
            found += counts.sum() * ((given**2 / np.maximum(p @ given, 1e-300)).sum(axis=1) - 1.0)
        return np.asarray(np.maximum(found, 0.0) / max(len(self.outputs), 1))

    def told_of(self, p: FloatArray) -> float:
        """φ² = (Σ_{y,o} p_y·M[y, o]²/q_o − 1)/(k − 1), 1 for true labels: what share of a label an output says."""
        return max(float(p @ self._averaged(p)) / (self.k - 1), LEAST_TOLD)

    @cached_property
    def unseen(self) -> FloatArray:
        """float64[k]: rows of each class that `shares` adds, by the prior: as many as say as much as half a true label
        of each."""
        return HALF * self.k / self.told_of(np.full(self.k, 1.0 / self.k)) * self.prior

    @cached_property
    def shares(self) -> FloatArray:
        """float64[k]: the likeliest class shares with `unseen` rows of each class added, by expectation-maximisation
        (Dempster, Laird & Rubin 1977) on the counts of outputs."""
        p = self.prior
        for _ in range(ROUNDS):
            found = self.unseen.copy()
            for given, counts in zip(self.given, self._counts, strict=True):
                found += p * (given @ (counts / np.maximum(p @ given, 1e-300)))
            found /= found.sum()
            step, p = float(np.max(np.abs(found - p))), found
            if step < SETTLED:
                break
        return p

    @cached_property
    def start(self) -> FloatArray:
        """float64[k]: the scores before anything is learned."""
        return np.asarray(np.log(self.shares))

    @cached_property
    def _at_start(self) -> FloatArray:
        """float64[k]: the information of an average row on each score, where nothing is learned yet."""
        return np.maximum(self.shares**2 * self._averaged(self.shares), 1e-300)

    @cached_property
    def information(self) -> float:
        """The same of an average score."""
        return float(self._at_start.mean())

    def capacity(self) -> Capacity:
        """By the rule for labels of which an output says the share φ². A tree is of one class of k, for which the rows
        say as much as 2/k of them would of two classes. As in `RowLikelihood.capacity` a leaf has at least the
        information of four certain choices between two labels that are as likely, and its λ is as much.

        The scores of k classes move together, which is a step k/(k − 1) too long (Friedman, Hastie & Tibshirani 2000).
        More than 4000 trees are not built: fewer rounds take longer steps instead.
        """
        k, n, told = self.k, len(self.outputs), min(self.told_of(self.shares), 1.0)
        signal = 1.0 - float(self.shares @ self.shares)
        ruled = choose_capacity(n, signal / told, signal * (1.0 / told - 1.0))
        ruled = ruled.scaled(told / ruled.signal_share)
        own = ruled.scaled(2.0 / k)
        rounds = min(own.rounds, max(MOST_TREES // k, FEWEST_ROUNDS))
        rate = min(own.learning_rate * own.rounds / rounds, LARGEST_RATE) * (k - 1) / k
        one = 1.0 / self.information
        return ruled.model_copy(
            update={
                "depth": own.depth,
                "rounds": rounds,
                "learning_rate": rate,
                "max_bins": own.max_bins,
                "rows_per_leaf": one,
                "leaf_penalty": one,
            }
        )

    def _parts(self) -> Iterator[tuple[Any, FloatArray]]:
        """The rows of each message (all of them at once where there is one), and its channel."""
        if len(self.given) == 1:
            yield slice(None), self.given[0]
            return
        for at, given in enumerate(self.given):
            yield np.flatnonzero(self.message == at), given

    def seen(self, p: Matrix) -> tuple[Matrix, Matrix]:
        """(p − r [n, k], the gradients on the scores; L [n] of what was seen) at probabilities [n, k], in their
        type."""
        gradient, likely = np.empty_like(p), np.empty(len(p), p.dtype)
        for here, given in self._parts():
            joint = p[here] * given.astype(p.dtype).T[self.outputs[here]]
            likely[here] = np.maximum(joint.sum(axis=1), np.finfo(p.dtype).tiny)
            gradient[here] = p[here] - joint / likely[here, None]
        return gradient, likely

    def information_along(self, p: Matrix, directions: Matrix) -> Matrix:
        """Fisher's information [n, j] of an output on scores along `directions` [k, j], at probabilities [n, k]."""
        found, least = np.empty((len(p), directions.shape[1]), p.dtype), np.finfo(p.dtype).tiny
        for here, given in self._parts():
            channel = given.astype(p.dtype)
            unlikely = 1.0 / np.maximum(p[here] @ channel, 1e6 * least)
            for at, direction in enumerate(directions.T):
                along = p[here] * direction
                found[here, at] = ((along @ channel) ** 2 * unlikely).sum(axis=1) - along.sum(axis=1) ** 2
        return found

    def __call__(self, score: Matrix) -> tuple[Matrix, Matrix]:
        """(gradient, Hessian) [n, k] at scores [n, k], in their type."""
        p = softmax(score)
        hessian, least = np.empty_like(p), 1e6 * np.finfo(p.dtype).tiny
        for here, given in self._parts():
            channel = given.astype(p.dtype)
            hessian[here] = (1.0 / np.maximum(p[here] @ channel, least)) @ (channel**2).T
        hessian -= 1.0
        hessian *= p
        hessian *= p
        gradient, _ = self.seen(p)
        floor = HESSIAN_FLOOR * self._at_start / self.information
        unit = p.dtype.type(1.0 / self.information)
        return gradient * unit, np.maximum(hessian * unit, floor.astype(p.dtype))
