"""From a release as it was asked for (REST, command line, a batch's template) to a typed request."""

from __future__ import annotations

from typing import Any

import numpy as np

from labels_party.kinds.message.clipping import parse_clipping
from labels_party.kinds.message.plan import ReleaseRequest
from labels_party.kinds.message.priors import GivenPrior, PublishedPriors
from labels_party.ledger.populations import Population
from shared.errors import InvalidLoss, InvalidPrior
from shared.losses import Loss, MatrixLoss
from shared.privacy import Epsilon
from shared.schemas.base import members_to
from shared.schemas.release import LossMatrix, Release

LATEST = "latest"
RULES = ("estimate", "uniform", LATEST)
RELEASE = "release"  # the kind of work


def make_request(
    priors: PublishedPriors,
    population: Population,
    asked: Release,
    *,
    loss: Loss | None = None,
    prior: GivenPrior | None = None,
) -> ReleaseRequest:
    """What `asked` stands for now; `loss` and `prior` where they were read from files. A prior is "estimate",
    "uniform", "latest" (that of the newest published release, else estimated), {"release": id},
    {"probabilities": [...]}, or None: estimated where the mechanism uses one.

    Raises InvalidInput and its kinds.
    """
    rule: str | None = None
    if prior is not None:
        pass
    elif isinstance(asked.prior, dict):
        prior = _prior_from_json(priors, population, asked.prior)
    elif asked.prior == LATEST:
        prior = priors.latest(population)
        rule = "estimate" if prior is None else None
    elif asked.prior is None or asked.prior in RULES:
        rule = asked.prior
    else:
        raise InvalidPrior("The prior is 'estimate', 'uniform', 'latest', an existing file, or an own message.")
    quantiles, clip_part = parse_clipping(asked.clip_quantile, asked.clip_epsilon)
    return ReleaseRequest(
        epsilon=Epsilon.parse(asked.epsilon, positive=True),
        mechanism=asked.mechanism,
        loss=loss or (_matrix(asked.loss) if isinstance(asked.loss, LossMatrix) else asked.loss),
        prior=rule,
        prior_epsilon=str(asked.prior_epsilon),
        prior_method=asked.prior_method,
        given_prior=None if prior is None else prior.probabilities,
        carried_from=None if prior is None else prior.release,
        options={name: value for name, value in members_to(asked, "mechanism").items() if value not in (None, False)},
        stated=members_to(asked, "manifest"),
        additional_release=asked.additional_release,
        clip_quantiles=quantiles,
        clip_epsilon=clip_part,
    )


def _matrix(given: LossMatrix) -> MatrixLoss:
    try:
        arrays = [np.asarray(part, np.float64) for part in (given.labels, given.outputs, given.matrix)]
    except ValueError:
        raise InvalidLoss("Every row of a loss matrix must have one number per output.") from None
    return MatrixLoss(*arrays)


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
