"""Values for the outputs of a channel: post-processing of the channel and a private prior, which costs no ε.

With rows M (k × m), prior p, P = diag(p) and D = diag(Mᵀp), the shares of the outputs, the values v of least E(v(Z) −
y)² + ρ·E(E[v(Z) | y] − y)² solve

    (D + ρ MᵀPM) v = (1 + ρ) MᵀP y

At ρ = 0 that is E[y | output], the `posterior`; towards ρ = ∞ it makes E[v | y] as near y as it can be, `debias`.

For a learner neither is best: it averages noise away, not bias. By the common rule (`model_error`) a bias of mean 0 and
slope 0 under the prior costs REST·(its square) + noise·P/n, which is least at ρ = REST·n/P − 1 (n/P: the examples per
effective parameter). `calibrated` takes the shape of that ρ and scales it to slope 1 of E[v | y], or to a little less
if the rest of the bias is large. The noise does not affect the scale: a learner shrinks noisy labels by itself, and
shrinking twice would be too much.

Nothing needs k × m cells: the equations are solved among g, Tg, T²g …, with g the posterior and T = D⁻¹MᵀPM the map
from an output to its possible labels and back to outputs (the Krylov space of conjugate gradients). T has eigenvalues
in 0 … 1 that fall fast for noisy channels, so few steps are exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from label_dp.channels.base import Channel
from label_dp.channels.model_error import FeatureSignal, effective_parameters, model_error
from label_dp.errors import InvalidMechanism

FloatArray = npt.NDArray[np.float64]

STEPS = 40  # of the Krylov space
LARGEST = 1 << 24  # its cells
EXHAUSTED = 1e-9  # a new direction below this share of the one before is rounding
SETTLED = 1e-6  # of the solution: contribution of the last direction at convergence
HEAVIEST = 3000.0  # largest ρ for which solutions must converge
WEAKEST = 1e-10  # an eigenvalue of T below it cannot be distinguished from 0
ROUNDS = 6  # of ρ, which depends on the noise, which depends on ρ
TIE = 1e-9  # share of a model error that rounding alone may make, on one processor or another


def bias_and_noise(channel: Channel, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return E[v | y] − y and Var[v | y] of `values` float64[m], float64[k] each, in (squared) label units."""
    centre = float(channel.labels[channel.k // 2])  # so that large labels lose no digits
    means, variances = channel.moments(np.asarray(values, np.float64) - centre)
    return means - (channel.labels - centre), variances


@dataclass(frozen=True)
class Solver:
    """Equations of one channel and prior, in the eigenbasis of T.

    `basis` float64[b, m] is orthonormal under the shares of the outputs, `strengths` float64[b] are T's eigenvalues,
    `along` float64[b] the posterior's coordinates. `mean` is the labels' under the prior, and `towards` float64[b] are
    the coordinates of E[feature signal | output], with the signal `told`.
    """

    mean: float
    told: FeatureSignal
    basis: FloatArray
    strengths: FloatArray
    along: FloatArray
    towards: FloatArray

    @classmethod
    def of(cls, channel: Channel, prior: FloatArray | None, heaviest: float = HEAVIEST) -> Solver:
        """Build the solver. `prior` float64[k] sums to 1 and may have zeros; None: uniform. `heaviest` is the largest ρ
        to solve for.

        Raises InvalidMechanism for a prior of another shape.
        """
        p = np.full(channel.k, 1.0 / channel.k) if prior is None else prior
        if p.shape != (channel.k,):
            raise InvalidMechanism("The prior of the message does not have one probability per label of its domain.")
        mean = float(channel.labels[0] + p @ (channel.labels - channel.labels[0]))
        y = channel.labels - mean
        shares = np.maximum(channel.output_distribution(p), 1e-300)
        feature_signal = FeatureSignal.of(channel.labels, p)
        posterior, part = (_adjoint(channel, p * one) / shares for one in (y, feature_signal.part))
        basis: list[FloatArray] = []
        images: list[FloatArray] = []
        direction, length = posterior, float(np.max(np.abs(y)))
        for _ in range(max(1, min(STEPS, channel.m, LARGEST // channel.m))):
            before = length
            for _ in range(2):  # twice is enough against rounding
                for earlier in basis:
                    direction = direction - float((shares * earlier) @ direction) * earlier
            length = math.sqrt(float(shares @ (direction * direction)))
            if not length > EXHAUSTED * before:
                break
            basis.append(direction / length)
            expected = channel.moments(basis[-1])[0]
            direction = _adjoint(channel, p * (expected - float(p @ expected))) / shares
            images.append(direction)
            if len(basis) % 4 == 0 and not math.isinf(heaviest):
                inner = np.stack(basis) * shares @ np.stack(images).T
                start = np.eye(len(basis))[0]
                solved = np.linalg.solve(np.eye(len(basis)) + heaviest * (inner + inner.T) / 2, start)
                if abs(solved[-1]) <= SETTLED * float(np.max(np.abs(solved))):
                    break
        if not basis:
            empty = np.empty(0)
            return cls(mean, feature_signal, np.empty((0, channel.m)), empty, empty, empty)
        stacked = np.stack(basis)
        weighted = stacked * shares
        back = weighted @ np.stack(images).T
        strengths, vectors = np.linalg.eigh((back + back.T) / 2)
        along, towards = (vectors.T @ (weighted @ one) for one in (posterior, part))
        return cls(mean, feature_signal, vectors.T @ stacked, np.clip(strengths, 0.0, 1.0), along, towards)

    def _coordinates(self, rho: float) -> FloatArray:
        if math.isinf(rho):
            nonzero = self.strengths > WEAKEST
            return np.where(nonzero, self.along / np.where(nonzero, self.strengths, 1.0), 0.0)
        return (1.0 + rho) * self.along / (1.0 + rho * self.strengths)

    def regularised(self, rho: float) -> FloatArray:
        """Return the solution for ρ > −1, float64[m]; for infinity, the least-squares solution of M v = y under the
        prior."""
        return np.asarray(self.mean + self._coordinates(rho) @ self.basis, np.float64)

    @property
    def informative(self) -> bool:
        """Whether the output carries any information about the label."""
        return bool(float(self.along @ self.along) > WEAKEST * self.told.variance)

    def calibrated(self, n: int) -> tuple[FloatArray, float]:
        """Return (float64[m], ρ): the values of least modelled error for n rows, at the scale of least bias.

        Raises InvalidMechanism if the output carries no information about the label.
        """
        if not self.informative:
            raise InvalidMechanism("The outputs of this channel say nothing on the labels of its prior.")
        rho, scaled = 0.0, self.along
        for _ in range(ROUNDS):
            free = self._coordinates(rho)
            # the scale of least bias
            inner, outer = float(free @ self.towards), float(free @ (self.along - self.towards))
            whole, part = float(self.strengths @ (free * free)), inner * inner / self.told.variance
            scaled = free * best_scale(self.told, inner, part, outer, max(whole - part, 0.0))
            signal = float(self.strengths @ (scaled * scaled))
            parameters = effective_parameters(signal, max(float(scaled @ scaled) - signal, 0.0), n)[1]
            rho = max(self.told.rest * n / parameters - 1.0, -0.9)
        return np.asarray(self.mean + scaled @ self.basis, np.float64), rho


def best_scale(told: FeatureSignal, inner: Any, square: Any, outer: Any, rest: Any) -> Any:
    """Find the c of least explained·|c·u − h|² along the feature signal h and rest·|c·u − w|² elsewhere, w the rest of
    the label.

    Takes `inner` u·h, `square` |u|² along h, `outer` u·w and `rest` |u|² elsewhere, numbers or arrays.
    """
    return (told.explained * inner + told.rest * outer) / (told.explained * square + told.rest * rest)


def _adjoint(channel: Channel, weights: FloatArray) -> FloatArray:
    """Compute Mᵀw, float64[m], for w float64[k] of either sign."""
    total = np.zeros(channel.m)
    for sign in (1.0, -1.0):
        part = np.maximum(sign * weights, 0.0)
        mass = float(part.sum())
        if mass > 0.0:
            total += sign * mass * channel.output_distribution(part / mass)
    return total


def debiased(channel: Channel, prior: FloatArray | None) -> FloatArray:
    """Return the channel's own corrected outputs, float64[m]; without such, the least-squares ones under the prior.

    Raises InvalidMechanism if the output carries no information about the label.
    """
    try:
        return np.asarray(channel.debiased_outputs(), np.float64)
    except InvalidMechanism:
        solver = Solver.of(channel, prior, math.inf)
        if not solver.informative:
            raise
        return solver.regularised(math.inf)


def best_outputs(channel: Channel, prior: FloatArray | None, n: int) -> tuple[FloatArray, float | None]:
    """Return (float64[m], ρ or None): the calibrated values for n rows, and their ρ.

    With None they are the debiased ones, if these are unbiased and as good or if there is no prior; or the outputs as
    drawn, if these carry no information about the label.
    """
    try:
        own = debiased(channel, prior)
    except InvalidMechanism:
        return np.asarray(channel.outputs, np.float64), None
    if prior is None or channel.m < 2 or (channel.unbiased and channel.m > LARGEST // STEPS):
        return own, None
    solver, n = Solver.of(channel, prior), max(n, 1)
    if not solver.informative:
        return own, None
    values, rho = solver.calibrated(n)
    if channel.unbiased:
        errors = [float(model_error(channel, prior, n, v)["expected_model_error"]) for v in (own, values)]
        if errors[0] <= errors[1] * (1.0 + TIE):
            return own, None
    return values, rho


def estimated_prior(channel: Channel, shares: FloatArray, rounds: int | None = None) -> FloatArray:
    """Estimate a prior float64[k] from the shares float64[m] of the outputs in a message, by a few rounds of
    expectation-maximisation.

    From the uniform prior its likelihood rises and it stays smooth. Costs no ε: the message is private.
    """
    prior = np.full(channel.k, 1.0 / channel.k)
    for _ in range(rounds or max(5, min(50, LARGEST // (channel.k + channel.m)))):
        ratio = shares / np.maximum(channel.output_distribution(prior), 1e-300)
        prior = prior * np.maximum(channel.moments(ratio)[0], 0.0)
        prior = prior / prior.sum()
    return prior
