"""Plan of a release, from public facts only: n, k, ε, and a public or already private prior (invariant
charge-for-labels)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from label_dp.channels.base import Channel
from label_dp.documents.canonical import canonical_bytes
from label_dp.documents.signed import MAX_BYTES
from label_dp.domain import Domain
from label_dp.errors import InvalidEpsilon, InvalidLoss, InvalidMechanism
from label_dp.losses import Loss, MatrixLoss, get_loss
from label_dp.privacy import ZERO, Epsilon, EpsilonSplit
from label_dp.schemas.base import members_to
from label_dp.schemas.json_types import JsonObject
from label_dp.schemas.release import Release
from labels_party.ledger.populations import Population
from labels_party.mechanisms.auto import AUTO, RR, choose, needs_no_prior
from labels_party.mechanisms.catalogue import MECHANISMS, Mechanism, get_mechanism
from labels_party.mechanisms.classes import buys_prior, class_prior
from labels_party.mechanisms.prior import check_prior, prior_epsilon
from labels_party.message.classes import loss_on, require_classes
from labels_party.message.clipping import check_clipping, parse_clipping

ESTIMATED, DECLARED, CARRIED, UNIFORM, NOT_USED = (
    "estimated",
    "declared public by the owner",
    "carried over",
    "uniform",
    "not used",
)
LISTED = 1024  # most outputs that a plan lists


@dataclass(frozen=True, eq=False)
class GivenPrior:
    """Prior, float64[k]; `release` is the release whose ε paid for it, None if the owner declares it public."""

    probabilities: npt.NDArray[np.float64]
    release: str | None = None


@dataclass(frozen=True)
class ReleaseRequest:
    """Request of the owner, and the prior that it names. Raises InvalidInput and its kinds."""

    asked: Release
    given: GivenPrior | None = None

    def __post_init__(self) -> None:
        _ = self.clipping, self.epsilon, self.loss  # refused at once

    @cached_property
    def epsilon(self) -> Epsilon:
        return Epsilon.parse(self.asked.epsilon, positive=True)

    @cached_property
    def loss(self) -> str | Loss | None:
        """Return the requested loss; None if the domain decides."""
        spec = self.asked.loss
        if spec is None or isinstance(spec, str):
            return spec
        try:
            arrays = [np.asarray(part, np.float64) for part in (spec.labels, spec.outputs, spec.matrix)]
        except ValueError:
            raise InvalidLoss("Every row of a loss matrix must have one number per output.") from None
        return MatrixLoss(*arrays)

    @cached_property
    def options(self) -> dict[str, object]:
        """Return the options of the mechanism."""
        return {
            name: value for name, value in members_to(self.asked, "mechanism").items() if value not in (None, False)
        }

    @cached_property
    def clipping(self) -> tuple[tuple[str, ...], Epsilon]:
        """Return the clip quantiles and ε_clip."""
        return parse_clipping(self.asked.clip_quantile, self.asked.clip_epsilon)


@dataclass(frozen=True)
class ReleasePlan:
    """Checked request, stored with its release: draws also after a crash read it."""

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

    def as_json(self) -> JsonObject:
        data = {
            "mechanism": self.mechanism,
            "loss": loss_json(self.loss),
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


def loss_json(loss: str | Loss) -> Any:
    """Return the loss as stored and requested: its name, or a matrix in the form of `LossMatrix`."""
    if isinstance(loss, MatrixLoss):
        arrays = {"labels": loss.row_labels, "outputs": loss.outputs, "matrix": loss.values}
        return {name: array.tolist() for name, array in arrays.items()}
    return loss if isinstance(loss, str) else loss.name


def make_plan(request: ReleaseRequest, population: Population, n: int) -> ReleasePlan:
    """Split ε and check everything that can be checked without labels. Raises InvalidInput and its kinds."""
    domain, plan = population.domain, split_epsilon(request, population, n)
    mechanism, loss = _rehearsed(request, domain, n), get_loss(plan.loss)
    # a rehearsal on a uniform prior finds wrong options and an ε too small for the mechanism
    channel = mechanism.design(domain, uniform(domain.k), plan.split.randomize, loss, request.options, n)
    if plan.prior_source != NOT_USED:
        channel.expected_loss(uniform(domain.k), loss)
    if len(canonical_bytes(channel.as_json())) > MAX_BYTES // 2:
        raise InvalidMechanism("The channel would not fit into a manifest; take a coarser domain or a smaller ε.")
    return plan


def split_epsilon(request: ReleaseRequest, population: Population, n: int) -> ReleasePlan:
    """Do `make_plan` without the rehearsal. Raises InvalidInput and its kinds."""
    domain, k = population.domain, population.domain.k
    loss_spec = loss_on(request.loss, domain)
    loss = get_loss(loss_spec)
    if domain.nominal:
        require_classes(request.asked)
    else:
        loss.check(domain.values)
    mechanism = _rehearsed(request, domain, n)
    if request.epsilon.nano == 0:
        raise InvalidEpsilon("ε must be greater than zero.")
    release, given_prior, (quantiles, clip_part) = request.asked, request.given, request.clipping
    check_clipping(quantiles, clip_part, request.epsilon, request.options, domain, n)
    rest = request.epsilon - clip_part
    source = _prior_source(request, mechanism.needs_prior(request.options))
    cells, prior_part = None, ZERO
    if source == ESTIMATED:
        rule = str(release.prior_epsilon)
        fixed = rule if rule in ("auto", "theorem7") else Epsilon.parse(rule, positive=True, name="ε for the prior")
        if isinstance(fixed, Epsilon) and fixed >= rest and quantiles:
            raise InvalidEpsilon("ε for the clipping bound and ε for the prior leave nothing of ε for the labels.")
        if domain.nominal:
            planned = class_prior(fixed, k=k, n=n, epsilon=rest)
        else:
            planned = prior_epsilon(fixed, k=k, n=n, epsilon=rest, from_zero=domain.from_zero)
        cells, prior_part = planned.cells, planned.epsilon
        if prior_part.nano == 0:
            source = UNIFORM  # ε too small to be split: everything goes into the labels
            cells = None
    if given_prior is not None:
        check_prior(given_prior.probabilities, k)
    return ReleasePlan(
        mechanism=release.mechanism,
        loss=loss_spec if isinstance(loss_spec, str) else loss,
        split=EpsilonSplit(clip_part, prior_part, rest - prior_part),
        prior_source=source,
        prior_method=release.prior_method if source == ESTIMATED else None,
        cells=cells,
        carried_from=None if given_prior is None else given_prior.release,
        options=request.options,
        clip_quantiles=quantiles,
        stated=members_to(release, "manifest"),
    )


@dataclass(frozen=True)
class Resolved:
    """Mechanism and channel of an attempt, and why."""

    mechanism: str
    channel: Channel
    why: str


def resolve(plan: ReleasePlan, domain: Domain, prior: npt.NDArray[np.float64] | None, n: int) -> Resolved:
    """Design the channel of `plan` for n labels; `auto` chooses here. The attempt's `prior` float64[k] is public or
    already private, so the choice is post-processing. Raises InvalidMechanism, InvalidEpsilon, InvalidPrior."""
    loss = get_loss(plan.loss)
    if plan.mechanism == AUTO:
        choice = choose(domain, uniform(domain.k) if prior is None else prior, plan.split.randomize, loss, n)
        return Resolved(choice.name, choice.channel, choice.why)
    design = get_mechanism(plan.mechanism).design
    channel = design(domain, prior, plan.split.randomize, loss, plan.options, n)
    return Resolved(plan.mechanism, channel, plan.why)


def _rehearsed(request: ReleaseRequest, domain: Domain, n: int) -> Mechanism:
    """Return the mechanism to rehearse. For `auto`: for classes one with a prior if `auto` buys one, for two labels the
    one that `auto` takes, else one that fits every domain. Raises InvalidMechanism."""
    if request.asked.mechanism != AUTO:
        return get_mechanism(request.asked.mechanism)
    if request.options:
        raise InvalidMechanism("The mechanism 'auto' chooses options itself; name a mechanism to give it options.")
    if domain.nominal:
        return MECHANISMS["rr-with-prior" if buys_prior(domain.k, n, request.epsilon) else "subset-selection"]
    return MECHANISMS[RR.name if needs_no_prior(domain, loss_on(request.loss, domain)) else "rr-on-bins"]


def _prior_source(request: ReleaseRequest, needed: bool) -> str:
    if request.given is not None:
        return CARRIED if request.given.release else DECLARED
    rule = request.asked.prior
    if rule is None:
        # naming the cost of a prior asks `auto` for one, also for two labels
        pays = request.asked.mechanism == AUTO and request.asked.prior_epsilon != "auto"
        return ESTIMATED if needed or pays else NOT_USED
    return UNIFORM if rule == UNIFORM else ESTIMATED  # "latest" was resolved before, or there is none yet


def uniform(k: int) -> npt.NDArray[np.float64]:
    """Return the uniform prior over k labels, float64[k]."""
    return np.full(k, 1.0 / k)
