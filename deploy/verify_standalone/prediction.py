"""A prediction: the query, and one of the values that its method can say, with noise as wide as ε asks for."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from .exact import plain, plain_float, spelled
from .kind import Answer, Kind
from .members import count, members, one_of, text
from .refusal import refuse

GRID = 1 << 20
MOST_PARTS, MOST_BOUND, MOST_TEXT = 1 << 12, 1 << 40, 200
PARTS = (
    "replace one example, its label and its features: which part an example belongs to depends on its id alone, and "
    "ids and their number are public"
)
LABEL = "replace one example's label; features, ids and their number are taken as given"
WALKED = "replace one example, its label and its position; ids and their number are public"
ADJACENCY = {"soft-majority": PARTS, "average": PARTS, "stable-ridge": LABEL, "stable-logistic": LABEL, "walk": WALKED}
CLASSIFIES = ("soft-majority", "stable-logistic", "walk")
NOISE = {"noise", "grid", "scale"}


def check_prediction(given: Answer) -> str:
    """A line for the value of a prediction."""
    p = members(given.parameters, ("predictor", "method", "query", "threshold"), "a prediction")
    method = one_of(p["method"], ADJACENCY, "the method")
    text(p["predictor"], "the predictor", most=MOST_TEXT)
    _check_query(p["query"])
    low, high = given.domain.ends
    classifies = method in CLASSIFIES
    if given.domain.k < 2 or classifies != (p["threshold"] is not None):
        refuse("a method that classifies has a threshold, and no other has one")
    if classifies and not low < float(plain(p["threshold"], "the threshold")) <= high:
        refuse("the threshold tells nothing of the label domain")
    given.check(given.epsilon, Fraction(0), ADJACENCY[method])
    if given.answer["mechanism"]["name"] != method or not given.epsilon:
        refuse("the mechanism is not that of the method, or costs nothing")
    top = _top(given, method)
    said = members(given.result, ("value",), "the result of a prediction")["value"]
    number = Fraction(plain(said, "the value"))
    plain_float(said, "the value")
    least, most = (Fraction(0), Fraction(1)) if classifies else (Fraction(repr(low)), Fraction(repr(high)))
    drawn = round((number - least) / (most - least) * top)
    if not 0 <= drawn <= top or spelled(least + (most - least) * Fraction(drawn, top)) != said:
        refuse("the value of a prediction is nothing that its method can say")
    return f"prediction by {method}: {said}"


def _check_query(query: Any) -> None:
    if not isinstance(query, dict):
        refuse("a query has a text or null for every feature")
    for value in query.values():
        if value is not None:
            text(value, "a value of the query", least=0, most=MOST_TEXT)


def _top(given: Answer, method: str) -> int:
    """The number that stands for the upper end of what the method says; its noise is checked on the way."""
    facts = given.facts
    if method == "walk":
        count(members(facts, ("bound",), "the mechanism of a walk")["bound"], 1, MOST_BOUND, "the bound")
        return 1
    if method == "soft-majority":
        count(members(facts, ("parts",), "the mechanism of a vote")["parts"], 1, MOST_PARTS, "the number of parts")
        return 1
    parts = method == "average"
    members(facts, NOISE | ({"parts"} if parts else {"stability"}), "the noise of the mechanism")
    if parts:
        step = Fraction(1, count(facts["parts"], 1, MOST_PARTS, "the number of parts"))
    else:
        step = Fraction(plain_float(facts["stability"], "the stability"))  # exact, its shortest spelling need not be
        if step <= 0 or (step * GRID).denominator != 1:
            refuse("a label does not move a prediction by a whole number of steps")
    if facts["noise"] != "discrete Laplace" or type(facts["grid"]) is not int or facts["grid"] != GRID:
        refuse("the noise of the mechanism is unknown")
    if facts["scale"] != spelled(step / given.epsilon):
        refuse("the noise of the mechanism is not as wide as ε asks for")
    return GRID * (facts["parts"] if parts else 1)


KIND = Kind("prediction", check_prediction)
