"""The randomizer that balances noise against bias for a model trained on its outputs: one bit with more outputs.

Minimises Σ p_y M(v | y)(v − y)² + ρ Σ p_y b_y², b_y = E[z | y] − y, over ε-DP rows with Σ p_y b_y = Σ p_y h_y b_y = 0,
since a bias of the mean affects a model in full, and so does most of the slope along h, the feature signal
(`label_dp.channels.model_error`). ρ = REST·n/P − 1 makes that the `model_error` of n labels; ρ = ∞ is the unbiased
randomizer. The optimum raises to e^ε·q a window of outputs around y + ρ(y − E[z | y]); with two outputs it is one bit
on a clipped label.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from label_dp.channels.base import Channel, FloatArray
from label_dp.channels.model_error import FeatureSignal
from label_dp.domain import Domain
from label_dp.errors import InvalidEpsilon, InvalidMechanism
from label_dp.losses import SQUARED
from label_dp.privacy import Epsilon
from labels_party.mechanisms.clip import best_clip
from labels_party.mechanisms.knots import exact_channel, place_knots, solvable_odds
from labels_party.mechanisms.linear_program import BiasPrice, best_rows
from labels_party.mechanisms.model_error import model_error
from labels_party.mechanisms.one_bit import one_bit_channel
from labels_party.mechanisms.unbiased import KNOTS, LARGEST, UNIFORM, KnotProblem

SMALLEST = Epsilon.parse("0.2")  # below it the best found has two outputs
DEARER = 2.0  # factor on the rule's price of bias: scaling afterwards helps a channel of less bias more
ROUNDS = 2  # of ρ, which depends on the noise
LARGEST_BIAS = 1.0  # half the domain's range


def balanced_channel(domain: Domain, prior: FloatArray, epsilon: Epsilon, n: int) -> Channel:
    """Find the channel of least `model_error` for `n` labels that follow `prior` float64[k] (public or private).

    Squared error decides whatever the loss, as in `model_error`. The channel is one bit, clipped by the prior, if more
    outputs are not better: below ε = 0.2, for two labels, and if the program finds none. One value gives the constant
    channel. Raises InvalidEpsilon (0, or too small for 64 bits).
    """
    best = one_bit_channel(domain, epsilon)  # refuses an ε of 0 before anything divides by it
    if domain.k == 1:
        return best
    best = one_bit_channel(domain, epsilon, best_clip(domain, prior, epsilon, n))
    if domain.k == 2 or epsilon < SMALLEST:
        return best
    errors = model_error(best, prior, n)
    error, weight = errors["expected_model_error"], errors["effective_parameters"] / n
    mixed, used = (1.0 - UNIFORM) * prior + UNIFORM / domain.k, min(epsilon, LARGEST)
    rest = FeatureSignal.of(domain.values, prior).rest
    problem = KnotProblem(domain, mixed, place_knots(domain.values, mixed, KNOTS))
    for _ in range(ROUNDS):
        try:
            channel = _solved(domain, problem, used, max(DEARER * rest / weight - 1.0, 0.1))
            errors = model_error(channel, prior, n)
        except (InvalidEpsilon, InvalidMechanism):
            break
        if errors["expected_model_error"] < error:
            best, error = channel, errors["expected_model_error"]
        weight = errors["effective_parameters"] / n
    return best


def _solved(domain: Domain, problem: KnotProblem, epsilon: Epsilon, rho: float) -> Channel:
    price = BiasPrice(rho, problem.mass, problem.told, LARGEST_BIAS)
    first = problem.first_outputs(epsilon)
    solved = best_rows(problem.at, problem.cost(SQUARED), solvable_odds(epsilon), first, price)
    outputs, order = problem.in_labels(solved.outputs)
    rows = solved.rows[:, order]
    means = [Fraction(mean) for mean in (rows @ outputs / rows.sum(axis=1)).tolist()]
    return exact_channel(domain, problem.knots, outputs, np.asarray(rows, np.float64), means, epsilon)
