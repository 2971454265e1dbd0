"""The log loss of labels of k classes, trained through the channels: the learner models the noise.

Scores f, one for each class, give the probability p_y = e^(f_y) / Σ e^f of label y. A channel M turns that into the
probability L_o = Σ_y p_y·M[y, o] of output o, and −log L of the observed output is minimised. With the posterior r_y =
p_y·M[y, o]/L_o, the gradient on f_y is p_y − r_y. The Hessian is the diagonal of its expectation over the outputs, the
Fisher information p_y²·(Σ_o M[y, o]²/L_o − 1) of a row on that score. Nothing has to be inverted, so channels that
leave labels out are used too, and rows of several messages count by the information of their channels. For two classes
it equals `likelihood.py`. Everything here is post-processing: it costs no ε.
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

ROUNDS, SETTLED = 5000, 1e-10  # of the search for the most likely shares
HALF = 0.5  # pseudo-count of each class (Krichevsky & Trofimov 1981), so that no share is 0
LEAST_TOLD = 1e-9
BLOCK = 1 << 22  # chances of outputs at once: subsets are several times as many as classes
EVEN = 0.01  # weight of an even prior mixed into an estimated one, which may be 0 at labels that occur
MOST_TREES, FEWEST_ROUNDS, LARGEST_RATE = 4000, 20, 0.3


@dataclass(frozen=True)
class ClassLikelihood:
    """Likelihood of n rows: `given` are float64[k, m], the channels of their messages; `message` and `outputs`
    integer[n].

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
        """Build the likelihood of privatized labels. Raises InvalidLoss for a channel whose domain is not `domain`.

        `prior` float64[k] (None: uniform) decides what no output identifies, such as the shares of labels that a
        channel leaves out.
        """
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
        """Build the likelihood of true labels float64[n], values of `domain`. Raises InvalidLoss for any other."""
        place, outside = domain.index(labels)
        if np.any(outside) or np.any(domain.values[place] != labels):
            raise InvalidLoss("The log loss needs labels that are values of the domain.")
        return cls((np.eye(domain.k),), np.zeros(len(labels), np.int8), place, np.full(domain.k, 1.0 / domain.k))

    def take(self, rows: slice | npt.NDArray[np.int64]) -> ClassLikelihood:
        return ClassLikelihood(self.given, self.message[rows], self.outputs[rows], self.prior)

    def together(self, rows: ExampleGroups) -> ClassLikelihood | None:
        """Merge to one row for each example; None if the product of its channels would be too large."""
        joint = joint_channels(self.given, self.message, self.outputs, rows)
        return None if joint is None else ClassLikelihood(*joint, self.prior)

    @property
    def k(self) -> int:
        return len(self.given[0])

    @cached_property
    def _counts(self) -> list[FloatArray]:
        """Count each output of each message."""
        return [
            np.bincount(self.outputs[self.message == at], minlength=channel.shape[1]).astype(np.float64)
            for at, channel in enumerate(self.given)
        ]

    def _averaged(self, p: FloatArray) -> FloatArray:
        """Return float64[k]: Σ_o M[y, o]²/q_o − 1, averaged over the rows, with q the output shares under label shares
        p."""
        information = np.zeros(self.k)
        for channel, counts in zip(self.given, self._counts, strict=True):
            information += counts.sum() * ((channel**2 / np.maximum(p @ channel, 1e-300)).sum(axis=1) - 1.0)
        return np.asarray(np.maximum(information, 0.0) / max(len(self.outputs), 1))

    def told_of(self, p: FloatArray) -> float:
        """Return φ² = (Σ_{y,o} p_y·M[y, o]²/q_o − 1)/(k − 1), the share of a label's information in an output: 1 for
        true labels."""
        return max(float(p @ self._averaged(p)) / (self.k - 1), LEAST_TOLD)

    @cached_property
    def unseen(self) -> FloatArray:
        """Rows of each class that `shares` adds, split by the prior: as much information as half a true label of each.
        float64[k]."""
        return HALF * self.k / self.told_of(np.full(self.k, 1.0 / self.k)) * self.prior

    @cached_property
    def shares(self) -> FloatArray:
        """Most likely class shares float64[k] with `unseen` rows of each class added.

        By expectation-maximisation (Dempster, Laird & Rubin 1977) on the counts of outputs.
        """
        p = self.prior
        for _ in range(ROUNDS):
            mass = self.unseen.copy()
            for channel, counts in zip(self.given, self._counts, strict=True):
                mass += p * (channel @ (counts / np.maximum(p @ channel, 1e-300)))
            mass /= mass.sum()
            step, p = float(np.max(np.abs(mass - p))), mass
            if step < SETTLED:
                break
        return p

    @cached_property
    def start(self) -> FloatArray:
        """Scores before anything is learned, float64[k]."""
        return np.asarray(np.log(self.shares))

    @cached_property
    def _at_start(self) -> FloatArray:
        """Information of an average row on each score before anything is learned, float64[k]."""
        return np.maximum(self.shares**2 * self._averaged(self.shares), 1e-300)

    @cached_property
    def information(self) -> float:
        """Information of an average row on an average score before anything is learned."""
        return float(self._at_start.mean())

    def capacity(self) -> Capacity:
        """Choose the capacity by the rule for labels whose outputs hold the share φ² of a label's information.

        A tree is of one class of k, for which the rows hold as much information as 2/k of them would for two classes.
        As in `RowLikelihood.capacity` a leaf has at least the information of four certain choices between two equally
        likely labels, and its λ is as much.

        The scores of k classes move together, which makes a step k/(k − 1) too long (Friedman, Hastie & Tibshirani
        2000). At most 4000 trees are built: fewer rounds take longer steps instead.
        """
        k, n, information = self.k, len(self.outputs), min(self.told_of(self.shares), 1.0)
        signal = 1.0 - float(self.shares @ self.shares)
        ruled = choose_capacity(n, signal / information, signal * (1.0 / information - 1.0))
        ruled = ruled.scaled(information / ruled.signal_share)
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
        """Yield the rows of each message (all rows at once if there is only one) and its channel."""
        if len(self.given) == 1:
            yield slice(None), self.given[0]
            return
        for at, channel in enumerate(self.given):
            yield np.flatnonzero(self.message == at), channel

    def _blocks(self) -> Iterator[tuple[Any, FloatArray]]:
        """Yield as `_parts`, some rows at a time, so that BLOCK holds a chance for each of them and each output."""
        for here, channel in self._parts():
            rows, step = len(self.outputs) if isinstance(here, slice) else len(here), max(1, BLOCK // channel.shape[1])
            for start in range(0, rows, step):
                part = slice(start, start + step)
                yield part if isinstance(here, slice) else here[part], channel

    def seen(self, p: Matrix) -> tuple[Matrix, Matrix]:
        """Return (p − r [n, k], the gradients on the scores; L [n] of the observed outputs) at probabilities [n, k], in
        their type."""
        gradient, likely = np.empty_like(p), np.empty(len(p), p.dtype)
        for here, channel in self._parts():
            joint = p[here] * channel.astype(p.dtype).T[self.outputs[here]]
            likely[here] = np.maximum(joint.sum(axis=1), np.finfo(p.dtype).tiny)
            gradient[here] = p[here] - joint / likely[here, None]
        return gradient, likely

    def information_along(self, p: Matrix, directions: Matrix) -> Matrix:
        """Return the Fisher information [n, j] of an output on scores along `directions` [k, j], at probabilities [n,
        k]."""
        information, least = np.empty((len(p), directions.shape[1]), p.dtype), np.finfo(p.dtype).tiny
        for here, matrix in self._blocks():
            channel = matrix.astype(p.dtype)
            unlikely = 1.0 / np.maximum(p[here] @ channel, 1e6 * least)
            for at, direction in enumerate(directions.T):
                along = p[here] * direction
                information[here, at] = ((along @ channel) ** 2 * unlikely).sum(axis=1) - along.sum(axis=1) ** 2
        return information

    def __call__(self, score: Matrix) -> tuple[Matrix, Matrix]:
        """Return (gradient, Hessian) [n, k] at scores [n, k], in their type."""
        p = softmax(score)
        hessian, least = np.empty_like(p), 1e6 * np.finfo(p.dtype).tiny
        for here, matrix in self._blocks():
            channel = matrix.astype(p.dtype)
            hessian[here] = (1.0 / np.maximum(p[here] @ channel, least)) @ (channel**2).T
        hessian -= 1.0
        hessian *= p
        hessian *= p
        gradient, _ = self.seen(p)
        floor = HESSIAN_FLOOR * self._at_start / self.information
        unit = p.dtype.type(1.0 / self.information)
        return gradient * unit, np.maximum(hessian * unit, floor.astype(p.dtype))
