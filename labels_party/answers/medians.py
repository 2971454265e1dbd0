"""Medians: a value of the label domain with about a third of a batch's labels on either side, or more.

By ranks (the exponential mechanism, pure ε) or by slices (Reorder–Slice–Compute, ε and δ). Everything that can be told
from n, the domain, ε and δ is told before anything is charged; that a median by slices found nothing is an answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from sqlalchemy.engine import Connection

from labels_party.answers.answers import Answers
from labels_party.answers.kind import REPLACE_ONE, AnswerJob, AnswerRequest, Computed
from labels_party.mechanisms.private_median.median import MedianPlan, private_median
from labels_party.mechanisms.private_median.quantiles import EACH, histogram_quantiles, plan_quantiles
from labels_party.storage.idempotency import NO_KEY, Answer, IdempotentCall
from shared.errors import InvalidEpsilon, InvalidInput
from shared.message.answer import AnswerMechanism
from shared.message.median import MEDIAN, METHODS
from shared.privacy import ATTO, ZERO, Epsilon, EpsilonSplit, delta_string, parse_delta

AUTO = "auto"
SLICES, RANKS = METHODS
LEAST_EPSILON = Epsilon.parse("0.001")  # below it a choice may not pay for its own rounding
SOURCES = {
    SLICES: "Cohen, Lyu, Nelson, Sarlós & Stemmer 2023, Reorder-Slice-Compute",
    RANKS: "McSherry & Talwar 2007; Smith 2011, the exponential mechanism on ranks",
}


@dataclass(frozen=True)
class MedianWish:
    """What is asked for, checked; all of it public."""

    epsilon: Epsilon
    delta_atto: int
    method: str
    additional_release: bool

    @classmethod
    def parse(
        cls,
        *,
        epsilon: str | int | float,
        delta: str | int | float = "0",
        method: str = AUTO,
        additional_release: bool = False,
    ) -> MedianWish:
        """`auto`: slices where a δ is given, ranks where none is. Raises InvalidEpsilon, InvalidInput."""
        asked, atto = Epsilon.parse(epsilon, positive=True), parse_delta(delta)
        if method not in (AUTO, *METHODS):
            raise InvalidInput(f"The method of a median is {AUTO}, {' or '.join(METHODS)}.")
        if asked < LEAST_EPSILON or asked > Epsilon.parse(64):
            raise InvalidEpsilon(f"A median needs an ε between {LEAST_EPSILON} and 64.")
        chosen = (SLICES if atto else RANKS) if method == AUTO else method
        if atto and chosen == RANKS:
            raise InvalidEpsilon("A median by ranks needs no δ; leave it out, or ask for one by slices.")
        return cls(asked, atto, chosen, additional_release)

    def split(self, n: int, k: int) -> EpsilonSplit:
        """What the batch is charged. Raises InvalidEpsilon, InvalidInput (too few labels for this ε and δ)."""
        if self.method == RANKS:
            plan_quantiles(["0.5"], self.epsilon, n, k, method=EACH)
            return EpsilonSplit(ZERO, ZERO, self.epsilon)
        plan = slices_plan(n, k, self.epsilon, self.delta_atto)
        if plan.interval.recursive:
            threshold, most = plan.interval.prefix(n - 2 * plan.sliced)
            if most < threshold:
                raise InvalidInput(
                    f"A median by slices at this ε and δ needs a prefix that {threshold} labels have, and looks for it "
                    f"among {most} of the {n}: it would find none. Take more labels, a larger ε or δ, or ranks, which "
                    "need fewer."
                )
        return plan.cost.split()


def slices_plan(n: int, k: int, epsilon: Epsilon, delta_atto: int) -> MedianPlan:
    return MedianPlan(n, k, epsilon.fraction, Fraction(delta_atto, ATTO))


class Medians:
    """The service; `MedianKind` computes."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers

    def request(self, batch_id: str, wish: MedianWish, actor: str, call: IdempotentCall = NO_KEY) -> Answer:
        """Charge, and queue the computation; (202, the median). Raises what `Answers.request` and `MedianWish.split`
        raise; then nothing was charged."""
        earlier = self.answers.database.read("median.seen", call.earlier)
        if earlier is not None:
            return earlier
        bare = AnswerRequest(MEDIAN, EpsilonSplit(ZERO, ZERO, wish.epsilon), {}, wish.additional_release)

        def look(connection: Connection) -> tuple[int, int]:
            batch, population = self.answers.allowed(connection, batch_id, bare)
            assert batch.n is not None
            return batch.n, population.domain.k

        split = wish.split(*self.answers.database.read("median.look", look))
        asked = AnswerRequest(MEDIAN, split, {"method": wish.method}, wish.additional_release)
        return self.answers.request(batch_id, asked, actor, call)


class MedianKind:
    """One pass over the sealed labels, paid by ε_randomize and δ of the answer."""

    name = MEDIAN
    adjacency = REPLACE_ONE

    def compute(self, job: AnswerJob) -> Computed:
        """Raises RandomnessUnavailable."""
        method, domain, epsilon = job.parameters["method"], job.population.domain, job.split.randomize
        found, facts = METHOD[method](job, domain.k, epsilon)
        median = None if found is None else format(domain.value(found), "f")
        result = {"found": median is not None, "median": median}
        return Computed(result, AnswerMechanism(name=f"median by {method}", source=SOURCES[method], facts=facts))


Found = tuple[int | None, dict[str, str | int | bool | None]]


def _by_ranks(job: AnswerJob, k: int, epsilon: Epsilon) -> Found:
    plan = plan_quantiles(["0.5"], epsilon, job.n, k, method=EACH)
    counts = np.zeros(k, np.int64)
    for _, index in job.labels.chunks():
        counts += np.bincount(index, minlength=k)
    return histogram_quantiles(counts, plan)[0], {"rank_error_19_of_20": math.ceil(plan.rank_error)}


def _by_slices(job: AnswerJob, k: int, epsilon: Epsilon) -> Found:
    plan = slices_plan(job.n, k, epsilon, job.split.delta_atto)
    points = np.concatenate([np.asarray(index, np.int64) for _, index in job.labels.chunks()]).astype(np.uint64)
    facts: dict[str, Any] = {"bound": plan.session.rule, "sliced_on_either_side": plan.sliced}
    facts |= {"levels": plan.interval.depth, "delta": delta_string(job.split.delta_atto)}
    return private_median(points, plan), facts


METHOD: dict[str, Callable[[AnswerJob, int, Epsilon], Found]] = {SLICES: _by_slices, RANKS: _by_ranks}
