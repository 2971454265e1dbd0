"""What a release will do, from public facts only: n, k, ε, a prior that is public or already private (invariant 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from labels_party.kinds.message.clipping import check_clipping
from labels_party.ledger.populations import Population
from labels_party.mechanisms.auto import AUTO, choose
from labels_party.mechanisms.catalogue import MECHANISMS, Mechanism, get_mechanism
from labels_party.mechanisms.prior import check_prior, prior_epsilon
from shared.channels.base import Channel
from shared.documents.canonical import canonical_bytes
from shared.documents.signed import MAX_BYTES
from shared.domain import Domain
from shared.errors import InvalidEpsilon, InvalidMechanism, InvalidPrior
from shared.losses import Loss, MatrixLoss, get_loss
from shared.privacy import ZERO, Epsilon, EpsilonSplit

ESTIMATED, DECLARED, CARRIED, UNIFORM, NOT_USED = (
    "estimated",
    "declared public by the owner",
    "carried over",
    "uniform",
    "not used",
)
LISTED = 1024  # a plan lists outputs up to this number, or none
DEFAULT_MECHANISM = AUTO


@dataclass(frozen=True)
class ReleaseRequest:
    """What the owner asks for. `prior` None means: estimated where the mechanism uses one; with `clip_quantiles` the
    labels are clipped at these, bought with `clip_epsilon` of the total. `stated` goes into the manifest as it is."""

    epsilon: Epsilon
    mechanism: str = DEFAULT_MECHANISM
    loss: str | Loss = "squared"
    prior: str | None = None
    prior_epsilon: str = "auto"
    prior_method: str = "project"
    given_prior: npt.NDArray[np.float64] | None = None
    carried_from: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    stated: Mapping[str, Any] = field(default_factory=dict)
    additional_release: bool = False
    clip_quantiles: tuple[str, ...] = ()
    clip_epsilon: Epsilon = ZERO


@dataclass(frozen=True)
class ReleasePlan:
    """A request after every check that needs no labels; stored with its release, drawn from also after a crash."""

    mechanism: str
    loss: str | Loss
    split: EpsilonSplit
    prior_source: str
    prior_method: str | None
    cells: npt.NDArray[np.int64] | None
    carried_from: str | None
    options: dict[str, Any]
    why: str = "asked for by the owner"
    clip_quantiles: tuple[str, ...] = ()
    stated: Mapping[str, Any] = field(default_factory=dict)

    @property
    def loss_name(self) -> str:
        return self.loss if isinstance(self.loss, str) else self.loss.name

    def as_json(self) -> dict[str, Any]:
        data = {
            "mechanism": self.mechanism,
            "loss": _loss_json(self.loss),
            "epsilon": self.split.as_json(),
            "prior": self.prior_source,
            "prior_method": self.prior_method,
            "cells": None if self.cells is None else self.cells.tolist(),
            "carried_from": self.carried_from,
            "options": self.options,
            "why": self.why,
        }
        bought = {"clip_quantiles": list(self.clip_quantiles)} if self.clip_quantiles else {}
        return data | bought | ({"stated": dict(self.stated)} if self.stated else {})

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ReleasePlan:
        loss = data["loss"]
        return cls(
            mechanism=data["mechanism"],
            loss=loss if isinstance(loss, str) else MatrixLoss(loss["labels"], loss["outputs"], loss["matrix"]),
            split=EpsilonSplit.from_json(data["epsilon"]),
            prior_source=data["prior"],
            prior_method=data["prior_method"],
            cells=None if data["cells"] is None else np.asarray(data["cells"], np.int64),
            carried_from=data["carried_from"],
            options=data["options"],
            why=data["why"],
            clip_quantiles=tuple(data.get("clip_quantiles", ())),
            stated=data.get("stated", {}),
        )


def _loss_json(loss: str | Loss) -> Any:
    if isinstance(loss, MatrixLoss):
        arrays = {"labels": loss.row_labels, "outputs": loss.outputs, "matrix": loss.values}
        return {name: array.tolist() for name, array in arrays.items()}
    return loss if isinstance(loss, str) else loss.name


def make_plan(request: ReleaseRequest, population: Population, n: int) -> ReleasePlan:
    """Split ε and check everything that can be checked without labels. Raises InvalidInput and its kinds."""
    mechanism, plan = _rehearsed(request), split_epsilon(request, population, n)
    domain, loss = population.domain, get_loss(request.loss)
    # a dress rehearsal on a prior without labels finds wrong options and an ε too small for the mechanism
    channel = mechanism.design(domain, uniform(domain.k), plan.split.randomize, loss, dict(request.options), n)
    if plan.prior_source != NOT_USED:
        channel.expected_loss(uniform(domain.k), loss)
    if len(canonical_bytes(channel.as_json())) > MAX_BYTES // 2:
        raise InvalidMechanism("The channel would not fit into a manifest; take a coarser domain or a smaller ε.")
    return plan


def split_epsilon(request: ReleaseRequest, population: Population, n: int) -> ReleasePlan:
    """`make_plan` without the rehearsal. Raises InvalidInput and its kinds."""
    mechanism = _rehearsed(request)
    domain, k = population.domain, population.domain.k
    loss = get_loss(request.loss)
    loss.check(domain.values)
    if request.epsilon.nano == 0:
        raise InvalidEpsilon("ε must be greater than zero.")
    check_clipping(request.clip_quantiles, request.clip_epsilon, request.epsilon, request.options, domain, n)
    rest = request.epsilon - request.clip_epsilon
    source = _prior_source(request, mechanism.needs_prior(request.options))
    cells, prior_part = None, ZERO
    if source == ESTIMATED:
        rule = request.prior_epsilon
        fixed = rule if rule in ("auto", "theorem7") else Epsilon.parse(rule, positive=True, name="ε for the prior")
        if isinstance(fixed, Epsilon) and fixed >= rest and request.clip_quantiles:
            raise InvalidEpsilon("ε for the clipping bound and ε for the prior leave nothing of ε for the labels.")
        planned = prior_epsilon(fixed, k=k, n=n, epsilon=rest)
        cells, prior_part = planned.cells, planned.epsilon
        if prior_part.nano == 0:
            source = UNIFORM  # ε too small to be split: everything goes into the labels
            cells = None
    if request.prior_method not in ("project", "clip"):
        raise InvalidPrior("The prior method is 'project' or 'clip'.")
    if request.given_prior is not None:
        check_prior(request.given_prior, k)
    return ReleasePlan(
        mechanism=request.mechanism,
        loss=request.loss if isinstance(request.loss, str) else loss,
        split=EpsilonSplit(request.clip_epsilon, prior_part, rest - prior_part),
        prior_source=source,
        prior_method=request.prior_method if source == ESTIMATED else None,
        cells=cells,
        carried_from=request.carried_from,
        options=dict(request.options),
        clip_quantiles=request.clip_quantiles,
        stated=request.stated,
    )


@dataclass(frozen=True)
class Resolved:
    """The mechanism that an attempt draws from, and why it is that one."""

    mechanism: str
    channel: Channel
    why: str


def resolve(plan: ReleasePlan, domain: Domain, prior: npt.NDArray[np.float64] | None, n: int) -> Resolved:
    """The channel of `plan` for n labels; `auto` is chosen here. `prior` float64[k] is that of the attempt, already
    private or public, so that the choice is post-processing. Raises InvalidMechanism, InvalidEpsilon, InvalidPrior."""
    loss = get_loss(plan.loss)
    if plan.mechanism == AUTO:
        choice = choose(domain, uniform(domain.k) if prior is None else prior, plan.split.randomize, loss, n)
        return Resolved(choice.name, choice.channel, choice.why)
    design = get_mechanism(plan.mechanism).design
    channel = design(domain, prior, plan.split.randomize, loss, plan.options, n)
    return Resolved(plan.mechanism, channel, plan.why)


def _rehearsed(request: ReleaseRequest) -> Mechanism:
    """The mechanism to rehearse: for `auto` the one that fits every domain. Raises InvalidMechanism."""
    if request.mechanism != AUTO:
        return get_mechanism(request.mechanism)
    if request.options:
        raise InvalidMechanism("The mechanism 'auto' chooses options itself; name a mechanism to give it options.")
    return MECHANISMS["rr-on-bins"]


def _prior_source(request: ReleaseRequest, needed: bool) -> str:
    if request.given_prior is not None:
        return CARRIED if request.carried_from else DECLARED
    if request.prior is None:
        return ESTIMATED if needed else NOT_USED
    if request.prior == "estimate":
        return ESTIMATED
    if request.prior == "uniform":
        return UNIFORM
    raise InvalidPrior("The prior is 'estimate', 'uniform', a file, or an earlier release of your own.")


def uniform(k: int) -> npt.NDArray[np.float64]:
    return np.full(k, 1.0 / k)
