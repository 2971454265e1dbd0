"""From what somebody wrote (REST, command line, a batch's template) to a typed request for a release."""

from __future__ import annotations

from typing import Any

import numpy as np

from labels_party.budget.populations import Population
from labels_party.release.clipping import parse_clipping
from labels_party.release.plan import DEFAULT_MECHANISM, ReleaseRequest
from labels_party.release.priors import GivenPrior, PublishedPriors
from shared.errors import InvalidLoss, InvalidMechanism, InvalidPrior
from shared.losses import Loss, MatrixLoss
from shared.privacy import Epsilon

LATEST = "latest"


def make_request(
    priors: PublishedPriors,
    population: Population,
    *,
    epsilon: str | int | float,
    mechanism: str = DEFAULT_MECHANISM,
    loss: str | Loss = "squared",
    prior: str | dict[str, Any] | GivenPrior | None = None,
    prior_epsilon: str | int | float = "auto",
    prior_method: str = "project",
    clip: str | list[Any] | None = None,
    unclipped: bool = False,
    tight: bool = False,
    additional_release: bool = False,
    clip_quantile: str | float | list[Any] | None = None,
    clip_epsilon: str | int | float | None = None,
) -> ReleaseRequest:
    """`prior`: "estimate", "uniform", "latest" (that of the newest published release, else estimated), {"release": id},
    {"probabilities": [...]}, one that was read already, or None: estimated where the mechanism uses one.
    `clip_quantile` (`Q`, `LOW:HIGH` or a list) is bought with `clip_epsilon`, and labels are clipped there.

    Raises InvalidInput and its kinds.
    """
    rule: str | None = None
    given: GivenPrior | None = None
    if isinstance(prior, GivenPrior):
        given = prior
    elif isinstance(prior, dict):
        given = _prior_from_json(priors, population, prior)
    elif prior == LATEST:
        given = priors.latest(population)
        rule = None if given is not None else "estimate"
    else:
        rule = prior
    quantiles, clip_part = parse_clipping(clip_quantile, clip_epsilon)
    return ReleaseRequest(
        epsilon=Epsilon.parse(epsilon, positive=True),
        mechanism=mechanism,
        loss=loss,
        prior=rule,
        prior_epsilon=str(prior_epsilon),
        prior_method=prior_method,
        given_prior=None if given is None else given.probabilities,
        carried_from=None if given is None else given.release,
        options=parse_options(clip, unclipped, tight),
        additional_release=additional_release,
        clip_quantiles=quantiles,
        clip_epsilon=clip_part,
    )


def request_of_template(priors: PublishedPriors, population: Population, template: dict[str, Any]) -> ReleaseRequest:
    """The request that a stored template (the members of POST releases) stands for now."""
    loss = template.get("loss", "squared")
    if isinstance(loss, dict):
        try:
            arrays = [np.asarray(loss[part], np.float64) for part in ("labels", "outputs", "matrix")]
        except ValueError:
            raise InvalidLoss("Every row of a loss matrix must have one number per output.") from None
        loss = MatrixLoss(*arrays)
    return make_request(priors, population, **(template | {"loss": loss}))


def parse_options(clip: str | list[Any] | None, unclipped: bool, tight: bool) -> dict[str, Any]:
    """Options of mechanisms: `clip` (one bit) is `auto`, `A:B` or a pair, both public; with `unclipped` the outputs of
    additive noise may leave the domain; `tight` (exponential) takes the scale Δ/ε instead of the paper's 2Δ/ε."""
    options: dict[str, Any] = {}
    if clip is not None:
        ends = clip.split(":") if isinstance(clip, str) and clip != "auto" else clip
        if ends != "auto" and len(ends) != 2:
            raise InvalidMechanism("Clipping ends are 'auto', or written A:B, lower end first.")
        options["clip"] = ends if ends == "auto" else [str(end) for end in ends]
    return options | ({"unclipped": True} if unclipped else {}) | ({"tight": True} if tight else {})


def _prior_from_json(priors: PublishedPriors, population: Population, prior: dict[str, Any]) -> GivenPrior:
    if set(prior) == {"probabilities"} and isinstance(prior["probabilities"], list):
        try:
            return GivenPrior(np.asarray(prior["probabilities"], np.float64))
        except (TypeError, ValueError, OverflowError):
            raise InvalidPrior("The probabilities of a prior are numbers, one per value of the domain.") from None
    if set(prior) == {"release"} and isinstance(prior["release"], str):
        return priors.of(population, prior["release"])
    raise InvalidPrior(
        'A prior is "estimate", "uniform", "latest", {"probabilities": [...]} or {"release": "rel_..."}.'
    )
