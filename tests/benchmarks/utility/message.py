"""A message in memory: the steps of a release (plan, private prior, design, draw) without services and signatures."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from label_dp.channels.base import Channel
from label_dp.privacy import Epsilon
from labels_party.ledger.populations import Population
from labels_party.mechanisms.prior import estimate_prior
from labels_party.mechanisms.sampling import sample
from labels_party.message.plan import (
    ESTIMATED,
    UNIFORM,
    ReleasePlan,
    ReleaseRequest,
    make_plan,
    resolve,
    uniform,
)
from tests.benchmarks.utility.cells import Cell
from tests.benchmarks.utility.sources import Split
from tests.support.asked import release_wish
from tests.support.asking import population as declared

FloatArray = npt.NDArray[np.float64]
LIFETIME = Epsilon.parse("1000")
CARRIED = "carried"
DESIGNED_FOR = {"absolute": "absolute"}  # a loss that models are trained with; for others the squared one, as published


@dataclass(frozen=True)
class Message:
    plan: ReleasePlan
    prior: FloatArray | None
    mechanism: str
    why: str
    channel: Channel


def population(split: Split) -> Population:
    return declared(split.name, "label", split.domain, LIFETIME)


def request(cell: Cell, given: FloatArray | None, loss: str = "squared") -> ReleaseRequest:
    return release_wish(
        epsilon=Epsilon.parse(cell.epsilon),
        mechanism=cell.mechanism,
        loss=loss,
        prior_epsilon=cell.prior_epsilon,
        prior_method=cell.prior_method,
        given_prior=given,
        carried_from="an earlier release" if given is not None else None,
        options=json.loads(cell.options),
    )


def carried_prior(cell: Cell, split: Split) -> FloatArray:
    """The prior of an earlier release at the same ε: of as many labels, drawn again with replacement."""
    k, rng = split.domain.k, np.random.default_rng([split.n, cell.seed])
    earlier = split.index[rng.integers(0, split.n, split.n)]
    plan = make_plan(request(cell, None), population(split), split.n)
    return private_prior(plan, np.bincount(earlier, minlength=k)) if plan.cells is not None else uniform(k)


def private_prior(plan: ReleasePlan, counts: npt.NDArray[np.int64]) -> FloatArray | None:
    if plan.prior_source == ESTIMATED:
        assert plan.cells is not None
        method: Any = plan.prior_method
        return estimate_prior(counts, plan.split.prior, plan.cells, method)
    return uniform(counts.size) if plan.prior_source == UNIFORM else None


def make_message(cell: Cell, split: Split) -> Message:
    """Everything but the draw; the channel is proved to keep the ε that is left for the labels."""
    given = carried_prior(cell, split) if cell.prior == CARRIED else None
    loss = "log" if split.domain.nominal else DESIGNED_FOR.get(split.loss, "squared")  # classes have no other
    plan = make_plan(request(cell, given, loss), population(split), split.n)
    assert plan.split.total == Epsilon.parse(cell.epsilon)
    prior = given if given is not None else private_prior(plan, np.bincount(split.index, minlength=split.domain.k))
    chosen = resolve(plan, split.domain, prior, split.n)
    assert chosen.channel.satisfies(plan.split.randomize)
    return Message(plan, prior, chosen.mechanism, chosen.why, chosen.channel)


def draw(message: Message, split: Split) -> npt.NDArray[np.int64]:
    """int64[n]: one output of the channel for each training label."""
    return sample(message.channel, split.index).astype(np.int64)
