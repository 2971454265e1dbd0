"""An unbiased randomizer of small expected loss: E[z | y] = y on the whole domain, in at most ε."""

from __future__ import annotations

import math

import numpy as np

from label_dp.channels.base import Channel, FloatArray, IntArray
from label_dp.channels.model_error import FeatureSignal
from label_dp.domain import Domain
from label_dp.errors import InvalidEpsilon, InvalidMechanism
from label_dp.losses import Log, Loss, MatrixLoss, Poisson, Squared, get_loss
from label_dp.privacy import Epsilon
from labels_party.mechanisms.knots import exact_channel, exact_labels, place_knots, shared_out, solvable_odds
from labels_party.mechanisms.linear_program import Cost, best_rows
from labels_party.mechanisms.one_bit import one_bit_channel

ALL_KNOTS = 61  # domains of at most so many labels have a row for each
KNOTS = 41
SMALLEST = Epsilon.parse("0.05")  # below it more outputs than two gain less than a thousandth
LARGEST = Epsilon.parse("12")  # above it the gain is below the precision of a float solver
LARGE = 5.0
UNIFORM = 1e-3  # of the prior, so that labels of no estimated mass are not sacrificed
DIGITS = 12  # of an output, relative to the outputs' span


def unbiased_channel(domain: Domain, prior: FloatArray, epsilon: Epsilon, loss: str | Loss = "squared") -> Channel:
    """Build a channel with small Σ p_y M(v | y) ℓ(v, y) subject to ε-DP and Σ_v v·M(v | y) = y, over labels at up to 61
    knots.

    Up to ε = 12 it is less than 2 % above the least of these knots, for which `best_rows` would take ten times as long.

    `prior` is float64[k]. Squared and absolute losses as they are; for Poisson and log the squared loss, because
    unbiased outputs include values without a logarithm, and their gradients are affine in the label. The channel is one
    bit on the domain's ends if that is as good: below ε = 0.05 and if the program finds none better. One value gives
    the constant channel. Raises InvalidEpsilon (0, or too small for 64 bits), InvalidMechanism (a loss given as a
    matrix), InvalidLoss.
    """
    ell = get_loss(loss)
    ell.check(domain.values)
    if isinstance(ell, MatrixLoss):
        raise InvalidMechanism(
            "An unbiased randomizer has outputs beyond the labels, where a loss given as a matrix has no value; "
            "take rr-on-bins, or the squared, absolute, Poisson or log loss."
        )
    simple = one_bit_channel(domain, epsilon)
    if domain.k == 1 or epsilon < SMALLEST:
        return simple
    if isinstance(ell, Poisson | Log):
        ell = Squared()
    prior = (1.0 - UNIFORM) * prior + UNIFORM / domain.k
    used = min(epsilon, LARGEST)
    problem = KnotProblem(
        domain, prior, place_knots(domain.values, prior, ALL_KNOTS if domain.k <= ALL_KNOTS else KNOTS)
    )
    try:
        solved = best_rows(problem.at, problem.cost(ell), solvable_odds(used), problem.first_outputs(used))
        outputs, order = problem.in_labels(solved.outputs)
        means = exact_labels(domain, problem.knots)
        channel = exact_channel(domain, problem.knots, outputs, solved.rows[:, order], means, used)
    except (InvalidEpsilon, InvalidMechanism):
        return simple
    better = channel.unbiased and channel.expected_loss(prior, ell) < simple.expected_loss(prior, ell)
    return channel if better else simple


class KnotProblem:
    """Labels distributed to knots, in units of half the domain's range about its middle: `at` float64[g] within ±1."""

    def __init__(self, domain: Domain, prior: FloatArray, knots: IntArray) -> None:
        y = domain.values
        self.knots = knots
        self.half = float(y[-1] - y[0]) / 2.0
        self.centre = float(y[0]) + self.half
        x = (y - self.centre) / self.half
        self.at = x[knots]
        self.mass, self.first, self.second = (shared_out(x, knots, prior * x**power) for power in range(3))
        self.told = shared_out(x, knots, prior * FeatureSignal.of(y, prior).part / self.half)

    def cost(self, loss: Loss) -> Cost:
        """Compute expected losses of outputs; between knots, losses other than the squared one count as at the
        knots."""
        if isinstance(loss, Squared):
            return lambda v: self.second[:, None] + v * (v * self.mass[:, None] - 2.0 * self.first[:, None])

        def other(v: FloatArray) -> FloatArray:
            labels, outputs = self.centre + self.half * self.at, self.centre + self.half * v
            return np.asarray(self.mass[:, None] * loss.matrix(outputs, labels) / self.half, np.float64)

        return other

    def first_outputs(self, epsilon: Epsilon) -> FloatArray:
        """Return those of one bit, which make the program feasible, and even grids of the reach and of the domain, at
        large ε the labels at the knots as well."""
        least = 1.0 / math.tanh(float(epsilon) / 2.0)
        # slightly beyond the least span: the program is solved at slightly less than ε
        ends = np.array([-1.0, 1.0]) * least * 1.00001
        inner = self.at if float(epsilon) > LARGE else np.linspace(-1.0, 1.0, 9)
        return np.unique(np.concatenate([np.linspace(-1.5, 1.5, 25) * least, ends, inner]))

    def in_labels(self, outputs: FloatArray) -> tuple[FloatArray, IntArray]:
        """Return the outputs in label units, to DIGITS digits, and the indices into `outputs`."""
        values = self.centre + self.half * outputs
        span = float(np.ptp(values))
        rounded = np.round(values, DIGITS - 1 - math.floor(math.log10(span)))
        distinct, order = np.unique(rounded, return_index=True)
        if distinct.size < 2:
            raise InvalidMechanism("The labels are too close to each other for outputs that can be told apart.")
        return distinct, order
