"""What an ε would give, before it is spent: from n, k, ε and a prior that is public or already private (invariant 1).

Mechanisms are ranked by the expected model error of `labels_party.mechanisms.model_error`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from labels_party.budget.populations import Population
from labels_party.mechanisms.catalogue import MECHANISMS, Mechanism
from labels_party.mechanisms.model_error import RULE, model_error
from labels_party.release.plan import LISTED, ReleaseRequest, make_plan, uniform
from labels_party.release.priors import GivenPrior
from shared.channel import Channel
from shared.errors import InvalidMechanism
from shared.losses import Loss, get_loss
from shared.privacy import Epsilon

FloatArray = npt.NDArray[np.float64]


def preview(
    population: Population,
    epsilons: list[Epsilon],
    loss: str,
    n: int,
    given: GivenPrior | None,
    spent: Epsilon,
    *,
    carried: bool = False,
) -> dict[str, Any]:
    """What each mechanism would give at each ε, and which one to take. `given` is the prior to judge under (None:
    uniform); with `carried` it also takes the place of an estimated one, at no cost. `spent` is the batch's so far.

    Reads n, k, ε and a public or already private prior; never labels.
    """
    p = uniform(population.domain.k) if given is None else given.probabilities
    rows, advice = [], []
    for epsilon in epsilons:
        of_epsilon = []
        for name, mechanism in MECHANISMS.items():
            request = ReleaseRequest(epsilon, mechanism=name, loss=loss)
            if carried and given is not None and mechanism.needs_prior({}):
                request = ReleaseRequest(
                    epsilon, mechanism=name, loss=loss, given_prior=given.probabilities, carried_from=given.release
                )
            row = _row(population, mechanism, request, n, p, loss)
            if row is not None:
                of_epsilon.append(row)
        rows += of_epsilon
        advice.append(_advice(population, epsilon, of_epsilon, spent))
    source = "uniform, as there is no private or public one yet"
    return {
        "population": population.id,
        "n": n,
        "loss": loss,
        "prior": source if given is None else f"carried over from release {given.release}",
        "mechanisms": rows,
        "recommendations": advice,
        "model_error_rule": RULE,
    }


def _row(
    population: Population, mechanism: Mechanism, request: ReleaseRequest, n: int, p: FloatArray, loss: str
) -> dict[str, Any] | None:
    try:
        plan = make_plan(request, population, n)
        channel = mechanism.design(population.domain, p, plan.split.randomize, get_loss(loss), {}, n)
    except InvalidMechanism:
        return None  # not for this domain, such as additive noise on uneven values
    described = describe_channel(channel, p, loss)
    return {"mechanism": mechanism.name, "epsilon": plan.split.as_json()} | described | model_error(channel, p, n)


def _advice(population: Population, epsilon: Epsilon, rows: list[dict[str, Any]], spent: Epsilon) -> dict[str, Any]:
    left = population.lifetime - spent
    allowed = epsilon <= left
    data: dict[str, Any] = {"epsilon": str(epsilon), "epsilon_left": str(left - epsilon) if allowed else None}
    if not rows:
        return data | {"mechanism": None, "why": "no mechanism fits this domain at this ε"}
    best = min(rows, key=lambda r: r["expected_model_error"])
    closest = min(rows, key=lambda r: r["expected_label_loss"])
    why = f"its expected model error is the smallest, {best['expected_model_error']:.4g} above noiseless labels"
    if closest is not best:
        why += (
            f"; {closest['mechanism']} has the smaller label error, but a bias that no number of rows averages away"
            if best["expected_bias_squared"] < closest["expected_bias_squared"]
            else f"; {closest['mechanism']} has the smaller label error, but more is lost in training on it"
        )
    if not best["learns_something"]:
        why += "; with so few rows or so small an ε a model is not expected to do better than a constant"
    if not allowed:
        why += "; the budget does not allow this ε"
    return data | {"mechanism": best["mechanism"], "why": why}


def describe_channel(channel: Channel, prior: FloatArray, loss: str | Loss) -> dict[str, Any]:
    """Figures of a channel under a private prior, all of them expected ones (invariant 6)."""
    return {
        "outputs": len(channel.outputs),
        "output_values": [float(v) for v in channel.outputs] if channel.m <= LISTED else None,
        "boundaries": [int(b) for b in getattr(channel, "boundaries", [])] if channel.m <= LISTED else None,
        "expected_label_loss": float(channel.expected_loss(prior, loss)),
        "flip_probability": float(channel.flip_probability(prior)),
        "unbiased": bool(channel.unbiased),
    }
