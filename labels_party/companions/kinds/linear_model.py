"""Linear models: private weights of the owner's features, trained in one pass over a batch by chosen minibatches.

Numbers become −1 … 1 of their public range, categories a number per listed value, the label −1 … 1 of its domain, so
that an example's contribution depends on that example and public values alone.
"""

from __future__ import annotations

import math
from fractions import Fraction

from label_dp.companions.kinds.linear_model import (
    LINEAR_MODEL,
    RULES,
    LinearModel,
    LinearModelFacts,
    label_scale,
    linear_model_cost,
    members,
)
from label_dp.companions.maps.places import number_text
from label_dp.domain import Domain
from label_dp.errors import InvalidInput
from label_dp.numbers import real_of
from label_dp.privacy import Epsilon
from labels_party.companions.kinds.answer import Computed
from labels_party.companions.kinds.feature_schema import COARSE, Schema
from labels_party.companions.kinds.own_features import FeatureKind, Planned, Wish, check_paid, examples, noise_of
from labels_party.companions.mechanisms.private_median.adaptive_training import UNIT as LATTICE
from labels_party.companions.mechanisms.private_median.adaptive_training import TrainingPlan, train
from labels_party.companions.mechanisms.private_prediction import UNIT
from labels_party.ledger.populations import Population
from labels_party.work.kind import Job

SOURCE = "Cohen, Lyu, Nelson, Sarlós & Stemmer 2023, Reorder-Slice-Compute: adaptive example selection"
UNIFORM = RULES[0]
CHOOSING = 3  # by default a choosing rule takes one in so many examples
DEFAULT_STEPS = 100  # and fewer if a minibatch of so many steps would have less than ENOUGH examples·ε
ENOUGH = 150
NOISY_SHARE = 0.3  # share of ε for a step with noisy slices, about
RATES = {UNIFORM: "1"}


def _sizes(wish: Wish[LinearModel], n: int) -> tuple[int, int]:
    """Return (steps, examples of a minibatch); all examples are used in uniform order, some if a rule chooses."""
    linear_model = wish.asked
    usable = n if linear_model.rule == UNIFORM else max(1, n // CHOOSING)
    if linear_model.steps is not None:
        return linear_model.steps, linear_model.minibatch or max(1, usable // linear_model.steps)
    steps = usable * float(wish.epsilon) / ENOUGH  # if every step has all of ε
    if linear_model.rule != UNIFORM:
        steps = steps * NOISY_SHARE if wish.delta_atto else math.sqrt(steps)
    if linear_model.minibatch is not None:
        steps = usable / linear_model.minibatch
    count = max(1, min(DEFAULT_STEPS, int(steps)))
    return count, linear_model.minibatch or max(1, usable // count)


def _rate(request: LinearModel) -> Fraction:
    """Return the learning rate; the default depends on the rule: hard examples make large steps."""
    try:
        return Fraction(number_text(real_of(RATES.get(request.rule, "0.25") if request.rate is None else request.rate)))
    except ValueError:
        raise InvalidInput("The learning rate is a decimal number.") from None


def _facts(plan: TrainingPlan) -> LinearModelFacts:
    return LinearModelFacts(gradient_noise_scale=number_text(plan.scale / (plan.clip * LATTICE)))


class LinearModelKind(FeatureKind[LinearModel]):
    """Kind with one pass over the sealed labels and the features, paid by ε_randomize and δ of the answer."""

    name = LINEAR_MODEL
    schema = LinearModel

    @classmethod
    def levels(cls, _asked: LinearModel) -> int:
        return COARSE

    @classmethod
    def wish(cls, population: Population, body: LinearModel) -> Wish[LinearModel]:
        _rate(body)
        return super().wish(population, body)

    @classmethod
    def planned(cls, wish: Wish[LinearModel], domain: Domain, n: int) -> Planned:
        """Plan the training. Raises InvalidInput (too few examples), InvalidEpsilon."""
        if domain.k < 2:
            raise InvalidInput("A label domain of one value leaves nothing to learn.")
        linear_model, rate = wish.asked, _rate(wish.asked)
        steps, minibatch = _sizes(wish, n)
        if steps * minibatch > n:
            raise InvalidInput(
                f"{steps} minibatches of {minibatch} need {steps * minibatch:,} examples with features, each of which "
                f"is used once at most, and there are {n:,}. Take fewer or smaller minibatches."
            )
        training_plan = TrainingPlan.cheapest(
            wish.cost,
            n=n,
            features=wish.schema.width,
            steps=steps,
            minibatch=minibatch,
            rule=linear_model.rule,
            clip=linear_model.clip,
            rate=rate,
        )
        middle, half = label_scale(domain)
        parameters = wish.session(n, training_plan.session, training_plan.noise, training_plan.slack) | {
            "rule": linear_model.rule,
            "steps": steps,
            "minibatch": minibatch,
            "clip": training_plan.clip,
            "huber": training_plan.huber,
            "rate": number_text(rate),
            "epsilon_per_step": str(Epsilon.round_up(training_plan.epsilon)),
            "middle": number_text(middle),
            "half_width": number_text(half),
        }
        return Planned(linear_model_cost(parameters).split(), parameters, _facts(training_plan))

    def compute(self, job: Job) -> Computed:
        """Train. Raises Unavailable, RandomnessUnavailable."""
        parameters, domain = job.work.plan, job.population.domain
        schema = Schema.from_json(parameters["features"], parameters["levels"])
        plan = TrainingPlan(
            parameters["examples"],
            schema.width,
            parameters["steps"],
            parameters["minibatch"],
            Epsilon.parse(parameters["epsilon_per_step"]).fraction,
            *noise_of(parameters),
            parameters["rule"],
            parameters["clip"],
            parameters["huber"],
            Fraction(parameters["rate"]),
        )
        check_paid(linear_model_cost(parameters), job)
        codes, positions = examples(self.features, job, schema)
        middle, half = label_scale(domain)
        weights = train(schema.coordinates(codes) / UNIT, (domain.values[positions] - middle) / half, plan)
        *each, constant = (number_text(weight) for weight in weights)
        entries = [
            member | {"weight": weight} for member, weight in zip(members(parameters["features"]), each, strict=True)
        ]
        name = f"linear model by {parameters['rule']} order"
        return Computed({"constant": constant, "weights": entries}, name, SOURCE, _facts(plan), self.adjacency)


KIND = LinearModelKind
