"""From an owner's request for a predictor to its plan: defaults of n and ε alone, refusals before a label is read."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from label_dp.domain import Domain
from label_dp.errors import InvalidInput
from label_dp.numbers import BadSpelling, decimal_of
from label_dp.privacy import Epsilon
from label_dp.schemas.predictor import Predictor
from labels_party.companions.kinds.answer import require_order
from labels_party.companions.kinds.feature_schema import Schema
from labels_party.companions.kinds.prediction.methods import (
    METHODS,
    Method,
    PredictorPlan,
    levels_of,
    threshold_position,
)
from labels_party.companions.mechanisms.private_prediction import average, stable, votes, walk

ALPHA = Fraction(1, 20)  # the error at which the default number of voting parts aims
NOISE = Fraction(1, 100)  # the default noise of an average as a share of the range, if n allows it
PER_PART = 25  # default minimum of examples in a part: a model of fewer is nearly useless


def make_plan(asked: Predictor, domain: Domain, n: int) -> PredictorPlan:
    """Make the plan for n examples with features.

    Raises InvalidInput and its kinds: every refusal comes here, before a label is read.
    """
    method = METHODS[asked.method]
    asked_epsilon, cap = of_query(asked), Epsilon.parse(asked.epsilon_cap, positive=True, name="the cap")
    if cap < asked_epsilon:
        raise InvalidInput(
            f"A query would cost ε {asked_epsilon} of a cap of ε {cap}: the ε of a query must be more than zero, "
            "and the cap must pay for at least one."
        )
    if n < 1:
        raise InvalidInput("No example of the batch has features; send a table of features with its example ids.")
    require_order(domain, "A predictor")
    if domain.k < 2:
        raise InvalidInput("A label domain of one value leaves nothing to predict.")
    _refuse_needless(asked, method)
    epsilon, stable_one = asked_epsilon.fraction, asked.method.startswith("stable-")
    parts_needed = votes.parts_for(ALPHA, epsilon) if method.classifies else average.parts_for(NOISE, epsilon)
    parts = asked.parts or min(parts_needed, max(1, n // PER_PART), votes.MOST_PARTS)
    plan = PredictorPlan(
        asked.method,
        asked_epsilon,
        cap,
        schema_of(asked),
        n,
        threshold=_number(asked.threshold, "threshold"),
        learner=(asked.learner or method.learner) if method.learner else None,
        parts=parts if method.learner else None,
        regularisation=_regularised(asked.regularisation, n, epsilon, method) if stable_one else None,
        centre=_number(asked.centre, "centre"),
        bound=(asked.bound or walk.default_bound(n, epsilon)) if asked.method == "walk" else None,
    )
    if method.classifies:
        if plan.threshold is None:
            raise InvalidInput(f"The method {method.name} needs a threshold: labels of at least that count as 1.")
        threshold_position(domain, plan.threshold)
    method.check(plan)
    return plan


def of_query(asked: Predictor) -> Epsilon:
    """Return the cost of a query. Raises InvalidEpsilon."""
    return Epsilon.parse(asked.epsilon, positive=True)


def schema_of(asked: Predictor) -> Schema:
    """Build the schema of the features. Raises InvalidInput."""
    return Schema.from_json([feature.model_dump() for feature in asked.features], levels_of(asked.method))


def _refuse_needless(request: Predictor, method: Method) -> None:
    options = {
        "threshold": (request.threshold, method.classifies),
        "learner": (request.learner, method.learner is not None),
        "parts": (request.parts, method.learner is not None),
        "regularisation": (request.regularisation, method.name.startswith("stable-")),
        "centre": (request.centre, method.name == "stable-ridge"),
        "bound": (request.bound, method.name == "walk"),
    }
    for name, (value, used) in options.items():
        if value is not None and not used:
            raise InvalidInput(f"The method {method.name} has no use for '{name}'; leave it out.")


def _regularised(value: str | int | float | None, n: int, epsilon: Fraction, method: Method) -> Fraction:
    if value is None:
        return stable.regularisation_for(n, epsilon, Fraction(7, 20 if method.classifies else 10))
    text = _number(value, "regularisation")
    scaled = Fraction(str(text)) * (1 << stable.REGULARISATION_BITS)
    return Fraction(-(-scaled.numerator // scaled.denominator), 1 << stable.REGULARISATION_BITS)  # up, to the grid


def _number(value: str | int | float | None, what: str) -> str | None:
    if value is None:
        return None
    try:
        number = decimal_of(value)
    except BadSpelling:
        number = Decimal("NaN")
    if not number.is_finite() or abs(number.adjusted()) > 60:
        raise InvalidInput(f"The {what} is a decimal number.")
    return format(number.normalize() + 0, "f")
