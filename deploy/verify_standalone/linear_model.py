"""A linear model: a weight for every number and every value of a category, and what its steps cost."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from .costs import Step, together
from .exact import NANO, plain_float, spelled, units
from .features import BOUND, WHOLE_EXAMPLE, check_features
from .kind import Answer, Kind
from .members import MANY, count, listed, members, one_of
from .refusal import refuse

RULES = ("uniform", "easiest", "hardest", "largest-prediction")
COUNTS = {"levels": 1 << 53, "steps": MANY, "minibatch": MANY, "clip": 64, "huber": 64}
PARAMETERS = (
    *("features", "examples", "rule", "slice_noise", "rate", "epsilon_per_step", "middle", "half_width"),
    *(*COUNTS, *BOUND),
)
MOST_WEIGHTS, LARGEST_WEIGHT, LARGEST_RATE = 256, 64, 16


def check_linear_model(given: Answer) -> str:
    """A line for the weights of a linear model."""
    p = members(given.parameters, PARAMETERS, "a linear model")
    result = members(given.result, ("constant", "weights"), "the result of a linear model")
    for name, most in COUNTS.items():
        count(p[name], 1, most, f"'{name}' of a linear model")
    _check_cost(given, p)
    low, high = given.domain.ends
    if given.domain.k < 2 or not 0 < plain_float(p["rate"], "the rate") <= LARGEST_RATE:
        refuse("a linear model learns at a rate up to 16, of labels that differ")
    if [p["middle"], p["half_width"]] != [spelled(low + (high - low) / 2), spelled((high - low) / 2)]:
        refuse("the scale of the label is not that of its domain")
    wanted = [(f["name"], value) for f in check_features(p["features"]) for value in f.get("values", [None])]
    told = listed(result["weights"], len(wanted), min(len(wanted), MOST_WEIGHTS - 1), "the list of weights")
    for entry in told:
        members(entry, ("name", "value", "weight"), "a weight")
    if [(entry["name"], entry["value"]) for entry in told] != wanted:
        refuse("a linear model has a weight for every number and every value of a category, in order")
    weights = [plain_float(text, "a weight") for text in (result["constant"], *(entry["weight"] for entry in told))]
    if max(map(abs, weights)) > LARGEST_WEIGHT:
        refuse("a weight is larger than one can be")
    return f"linear model of {len(told)} weights after {p['steps']} steps, its cost by {p['bound']}"


def _check_cost(given: Answer, p: Any) -> None:
    rule = one_of(p["rule"], RULES, "the rule of training")
    n = count(p["examples"], 1, given.n, "the number of examples")
    count(p["slice_noise"], 0, 1 << 53, "the noise of slices")
    if n < p["steps"] * p["minibatch"]:
        refuse("there are too few examples: each is used in one minibatch at most")
    nano = units(p["epsilon_per_step"], NANO, "ε of a step")
    if not nano:
        refuse("a step costs ε")
    epsilon = Fraction(nano, NANO)
    step = Step(epsilon, Fraction(0), epsilon / 2, shuffled=rule == RULES[0])
    given.check(*together(p, step, p["steps"]), WHOLE_EXAMPLE)


KIND = Kind("linear-model", check_linear_model)
