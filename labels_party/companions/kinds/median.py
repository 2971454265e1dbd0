"""Medians: a value of the label domain with about a third of a batch's labels on either side, or more.

By ranks (the exponential mechanism, pure ε) or by slices (Reorder–Slice–Compute, ε and δ). Every refusal that n, the
domain, ε and δ allow comes before a charge. A median by slices without a result is an answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from label_dp.companions.kinds.median import MEDIAN, METHODS, Median, RanksFacts, SlicesFacts, median_cost
from label_dp.documents.kind import REPLACE_ONE, Facts
from label_dp.errors import InvalidEpsilon, InvalidInput
from label_dp.privacy import ATTO, ZERO, Delta, Epsilon, EpsilonSplit, parse_delta
from labels_party.companions.kinds.answer import AnswerKind, Computed, require_order
from labels_party.companions.kinds.own_features import check_paid
from labels_party.companions.mechanisms.private_median.median import MedianPlan, private_median
from labels_party.labels.batches import Batch
from labels_party.ledger.populations import Population
from labels_party.mechanisms.quantiles import EACH, histogram_quantiles, plan_quantiles
from labels_party.work.kind import Job, PlannedWork, SchemaKind

AUTO = "auto"
SLICES, RANKS = METHODS
LEAST_EPSILON = Epsilon.parse("0.001")  # below it a choice may not pay for its own rounding
SOURCES = {
    SLICES: "Cohen, Lyu, Nelson, Sarlós & Stemmer 2023, Reorder-Slice-Compute",
    RANKS: "McSherry & Talwar 2007; Smith 2011, the exponential mechanism on ranks",
}


@dataclass(frozen=True)
class MedianWish:
    """Checked request; all of it public."""

    epsilon: Epsilon
    delta_atto: int
    method: str
    additional_release: bool

    @classmethod
    def parse(cls, asked: Median) -> MedianWish:
        """Parse a request. `auto`: slices with a δ, ranks without one. Raises InvalidEpsilon."""
        epsilon, atto = Epsilon.parse(asked.epsilon, positive=True), parse_delta(asked.delta)
        if epsilon < LEAST_EPSILON or epsilon > Epsilon.parse(64):
            raise InvalidEpsilon(f"A median needs an ε between {LEAST_EPSILON} and 64.")
        method = (SLICES if atto else RANKS) if asked.method == AUTO else asked.method
        if atto and method == RANKS:
            raise InvalidEpsilon("A median by ranks needs no δ; leave it out, or ask for one by slices.")
        return cls(epsilon, atto, method, asked.additional_release)

    def split(self, n: int, k: int) -> EpsilonSplit:
        """Compute the batch's charge. Raises InvalidEpsilon, InvalidInput (too few labels for this ε and δ)."""
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
        return median_cost(self.method, n, k, self.epsilon, plan.cost.split().delta_atto).split()


def slices_plan(n: int, k: int, epsilon: Epsilon, delta_atto: int) -> MedianPlan:
    """Build the plan of a median of n labels at k domain points."""
    return MedianPlan(n, k, epsilon.fraction, Fraction(delta_atto, ATTO))


class MedianKind(AnswerKind[MedianWish], SchemaKind[Median, MedianWish]):
    """Kind with one pass over the sealed labels, paid by ε_randomize and δ of the answer."""

    name = MEDIAN
    adjacency = REPLACE_ONE
    schema = Median

    def wish(self, _population: Population, body: Median) -> MedianWish:
        return MedianWish.parse(body)

    def plan(self, batch: Batch, population: Population, wish: MedianWish) -> PlannedWork:
        assert batch.n is not None
        require_order(population.domain, "A median")
        split = wish.split(batch.n, population.domain.k)
        return self.asked(split, {"method": wish.method}, additional_release=wish.additional_release)

    def compute(self, job: Job) -> Computed:
        """Draw the median. Raises RandomnessUnavailable, EpsilonNotProved."""
        method, domain, epsilon = job.work.plan["method"], job.population.domain, job.work.split.randomize
        value, facts = METHOD[method](job, domain.k, epsilon)
        median = None if value is None else format(domain.value(value), "f")
        result = {"found": median is not None, "median": median}
        return Computed(result, f"median by {method}", SOURCES[method], facts, self.adjacency)


Found = tuple[int | None, Facts]


def _by_ranks(job: Job, k: int, epsilon: Epsilon) -> Found:
    plan = plan_quantiles(["0.5"], epsilon, job.n, k, method=EACH)
    counts = np.zeros(k, np.int64)
    for index in job.labels.positions():
        counts += np.bincount(index, minlength=k)
    return histogram_quantiles(counts, plan)[0], RanksFacts(rank_error_19_of_20=math.ceil(plan.rank_error))


def _by_slices(job: Job, k: int, epsilon: Epsilon) -> Found:
    plan = slices_plan(job.n, k, epsilon, job.work.split.delta_atto)
    check_paid(plan.cost, job)
    points = np.concatenate([np.asarray(index, np.int64) for index in job.labels.positions()]).astype(np.uint64)
    facts = SlicesFacts(
        bound=plan.session.rule,
        sliced_on_either_side=plan.sliced,
        levels=plan.interval.depth,
        delta=Delta(job.work.split.delta_atto),
    )
    return private_median(points, plan), facts


METHOD: dict[str, Callable[[Job, int, Epsilon], Found]] = {SLICES: _by_slices, RANKS: _by_ranks}

KIND = MedianKind
