"""Typed requests of releases that come by REST, command line or a batch's template."""

from __future__ import annotations

from typing import Any

import numpy as np

from label_dp.errors import InvalidPrior
from label_dp.schemas.release import Release
from labels_party.ledger.populations import Population
from labels_party.message.plan import GivenPrior, ReleaseRequest
from labels_party.message.priors import PublishedPriors

LATEST = "latest"
RULES = ("estimate", "uniform", LATEST)
RELEASE = "release"  # the kind of work


def make_request(
    priors: PublishedPriors, population: Population, asked: Release, given: GivenPrior | None = None
) -> ReleaseRequest:
    """Resolve the prior of `asked` and return the typed request. `given`: a prior that was read from a file.

    A prior is "estimate", "uniform", "latest" (that of the newest published release, else estimated), {"release": id},
    {"probabilities": [...]}, or None: estimated if the mechanism uses one.

    Raises InvalidInput and its kinds.
    """
    if given is None and isinstance(asked.prior, dict):
        given = _prior_from_json(priors, population, asked.prior)
    elif given is None and asked.prior == LATEST:
        given = priors.latest(population)
    elif given is None and asked.prior not in (None, *RULES):
        raise InvalidPrior("The prior is 'estimate', 'uniform', 'latest', an existing file, or an own message.")
    return ReleaseRequest(asked, given)


def _prior_from_json(priors: PublishedPriors, population: Population, prior: dict[str, Any]) -> GivenPrior:
    if set(prior) == {"probabilities"} and isinstance(prior["probabilities"], list):
        try:
            if not {type(one) for one in prior["probabilities"]} <= {int, float}:
                raise TypeError  # numpy would read texts as Python does
            return GivenPrior(np.asarray(prior["probabilities"], np.float64))
        except (TypeError, ValueError, OverflowError):
            raise InvalidPrior("The probabilities of a prior are numbers, one per value of the domain.") from None
    if set(prior) == {"release"} and isinstance(prior["release"], str):
        return priors.of(population, prior["release"])
    raise InvalidPrior(
        'A prior is "estimate", "uniform", "latest", {"probabilities": [...]} or {"release": "rel_..."}.'
    )
