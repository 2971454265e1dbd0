"""Linear models: private weights of the owner's features, trained once through a batch by chosen minibatches.

Numbers become −1 … 1 of their public range, categories a number per listed value, the label −1 … 1 of its domain, so
that what an example contributes is a function of that example and of public things.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from labels_party.kinds.answer import Computed
from labels_party.kinds.feature_schema import Schema
from labels_party.kinds.own_features import FeatureKind, Planned, check_paid, examples, parse_total
from labels_party.ledger.populations import Population
from labels_party.mechanisms.private_median.adaptive_training import UNIT as LATTICE
from labels_party.mechanisms.private_median.adaptive_training import TrainingPlan, train
from labels_party.mechanisms.private_prediction import UNIT
from labels_party.work.kind import Job
from shared.costs.sessions import rho_texts
from shared.costs.slices import Cost, SliceNoise
from shared.documents.answer import AnswerMechanism
from shared.documents.kinds.linear_model import LINEAR_MODEL, RULES, label_scale, linear_model_cost, members
from shared.domain import Domain
from shared.errors import InvalidInput
from shared.maps.places import number_text
from shared.numbers import real_of
from shared.privacy import ATTO, Epsilon, delta_string
from shared.schemas.linear_model import LinearModel

SOURCE = "Cohen, Lyu, Nelson, Sarlós & Stemmer 2023, Reorder-Slice-Compute: adaptive example selection"
UNIFORM = RULES[0]
CHOOSING = 3  # by default a rule that chooses takes one in so many examples
DEFAULT_STEPS = 100  # and fewer where a minibatch of so many steps would have less than ENOUGH examples·ε
ENOUGH = 150
NOISY_SHARE = 0.3  # of ε, what a step gets where slices are noisy; about
MOST_STEPS = 1000
RATES = {UNIFORM: "1"}


@dataclass(frozen=True)
class LinearModelWish:
    """What is asked for, checked; all of it public. `steps`, `minibatch` None: by n."""

    epsilon: Epsilon
    delta_atto: int
    schema: Schema
    rule: str
    steps: int | None
    minibatch: int | None
    clip: int
    rate: Fraction
    additional_release: bool

    @classmethod
    def parse(
        cls,
        *,
        epsilon: str | int | float,
        features: list[dict[str, Any]],
        delta: str | int | float = "0",
        rule: str = UNIFORM,
        steps: int | None = None,
        minibatch: int | None = None,
        clip: int = 2,
        rate: str | int | float | None = None,
        additional_release: bool = False,
    ) -> LinearModelWish:
        """`rate` None: by the rule; hard examples make large steps. Raises InvalidEpsilon, InvalidInput."""
        asked, atto = parse_total(epsilon, delta, "linear model")
        if rule not in RULES:
            raise InvalidInput(f"The rule that orders examples is one of {', '.join(RULES)}.")
        if steps is not None and not 1 <= steps <= MOST_STEPS:
            raise InvalidInput(f"Training takes 1 to {MOST_STEPS} steps.")
        if minibatch is not None and minibatch < 1:
            raise InvalidInput("A minibatch has at least one example.")
        return cls(
            asked,
            atto,
            Schema.from_json(features),
            rule,
            steps,
            minibatch,
            clip,
            _rate(RATES.get(rule, "0.25") if rate is None else rate),
            additional_release,
        )

    def plan(self, domain: Domain, n: int) -> Planned:
        """Raises InvalidInput (too few examples), InvalidEpsilon."""
        if domain.k < 2:
            raise InvalidInput("A label domain of one value leaves nothing to learn.")
        steps, minibatch = self._sizes(n)
        if steps * minibatch > n:
            raise InvalidInput(
                f"{steps} minibatches of {minibatch} need {steps * minibatch:,} examples with features, each of which "
                f"is used once at most, and there are {n:,}. Take fewer or smaller minibatches."
            )
        found = TrainingPlan.cheapest(
            Cost(self.epsilon.fraction, Fraction(self.delta_atto, ATTO)),
            n=n,
            features=self.schema.width,
            steps=steps,
            minibatch=minibatch,
            rule=self.rule,
            clip=self.clip,
            rate=self.rate,
        )
        middle, half = label_scale(domain)
        parameters = {
            "features": self.schema.as_json(),
            "examples": n,
            "levels": self.schema.levels,
            "rule": self.rule,
            "steps": steps,
            "minibatch": minibatch,
            "slice_noise": 0 if found.noise is None else found.noise.mean,
            "clip": found.clip,
            "huber": found.huber,
            "rate": number_text(self.rate),
            "epsilon_per_step": str(Epsilon.round_up(found.epsilon)),
            "delta_of_bound": delta_string(int(found.slack * ATTO)),
            "bound": found.session.rule,
            "rho": rho_texts(found.session.rho),
            "middle": number_text(middle),
            "half_width": number_text(half),
        }
        return Planned(linear_model_cost(parameters).split(), parameters, _facts(found))

    def _sizes(self, n: int) -> tuple[int, int]:
        """(steps, examples of a minibatch); all examples are used in uniform order, some where a rule chooses."""
        usable = n if self.rule == UNIFORM else max(1, n // CHOOSING)
        if self.steps is not None:
            return self.steps, self.minibatch or max(1, usable // self.steps)
        steps = usable * float(self.epsilon) / ENOUGH  # where every step has all of ε
        if self.rule != UNIFORM:
            steps = steps * NOISY_SHARE if self.delta_atto else math.sqrt(steps)
        if self.minibatch is not None:
            steps = usable / self.minibatch
        count = max(1, min(DEFAULT_STEPS, int(steps)))
        return count, self.minibatch or max(1, usable // count)


def _rate(given: str | int | float) -> Fraction:
    try:
        return Fraction(number_text(real_of(given)))
    except ValueError:
        raise InvalidInput("The learning rate is a decimal number.") from None


def _facts(plan: TrainingPlan) -> dict[str, str | int | bool | None]:
    """`gradient_noise_scale`: of the noise of a coordinate, in units of the most that one example contributes."""
    return {
        "gradient_noise_scale": number_text(plan.scale / (plan.clip * LATTICE)),
    }


class LinearModelKind(FeatureKind[LinearModel, LinearModelWish]):
    """One pass over the sealed labels and the features, paid by ε_randomize and δ of the answer."""

    name = LINEAR_MODEL
    path = "linear-models"
    schema = LinearModel

    def wish(self, _population: Population, body: LinearModel) -> LinearModelWish:
        return LinearModelWish.parse(**body.model_dump())

    def compute(self, job: Job) -> Computed:
        """Raises Unavailable, RandomnessUnavailable."""
        given, domain = job.work.plan, job.population.domain
        schema = Schema.from_json(given["features"], given["levels"])
        plan = TrainingPlan(
            given["examples"],
            schema.width,
            given["steps"],
            given["minibatch"],
            Epsilon.parse(given["epsilon_per_step"]).fraction,
            SliceNoise(given["slice_noise"]) if given["slice_noise"] else None,
            Fraction(given["delta_of_bound"]),
            given["rule"],
            given["clip"],
            given["huber"],
            Fraction(given["rate"]),
        )
        check_paid(linear_model_cost(given), job)
        codes, positions = examples(self.features, job, schema)
        middle, half = label_scale(domain)
        weights = train(schema.coordinates(codes) / UNIT, (domain.values[positions] - middle) / half, plan)
        *each, constant = (number_text(weight) for weight in weights)
        told = [member | {"weight": weight} for member, weight in zip(members(given["features"]), each, strict=True)]
        mechanism = AnswerMechanism(name=f"linear model by {given['rule']} order", source=SOURCE, facts=_facts(plan))
        return Computed({"constant": constant, "weights": told}, mechanism, self.adjacency)
