"""A prediction among the signed answers: of which query, by which predictor, what was drawn.

`parameters` hold the query in its canonical form, so whoever asked can see what was answered: a number is the place of
its range that it was rounded to, what was missing or not listed is null. `result` is one decimal: with a `threshold`
whether (0, 1) or how likely the label reaches it, else a value between the ends of the label domain.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from shared.errors import MalformedAnswer
from shared.message.answer import Answer, register, trusted_answer
from shared.message.own_features import is_decimal
from shared.message.signing import VerifyingKey

PREDICTION = "prediction"
PARAMETERS = {"predictor", "method", "query", "threshold"}
MOST = 200
ROUNDING = Fraction(1, 1 << 50)  # of the ends: values are decimals of 64-bit floats


@dataclass(frozen=True)
class Prediction:
    """A verified prediction, the digest of its document, and the envelope as it came."""

    answer: Answer
    digest: str
    envelope: bytes

    @property
    def query(self) -> dict[str, str | None]:
        found: dict[str, str | None] = self.answer.parameters["query"]
        return found

    @property
    def value(self) -> float:
        return float(self.answer.result["value"])


def open_prediction(envelope: bytes, key: VerifyingKey, audience: str | None) -> Prediction:
    """A prediction from its envelope. Raises the VerificationFailed of the rule that was broken."""
    answer, digest = trusted_answer(envelope, key, audience, PREDICTION)
    return Prediction(answer, digest, envelope)


def check_prediction(answer: Answer) -> None:
    """Raises MalformedAnswer."""
    given, result = answer.parameters, answer.result
    query, threshold = given.get("query"), given.get("threshold")
    texts = all(isinstance(given.get(name), str) and given[name] for name in ("predictor", "method"))
    if set(given) != PARAMETERS or not texts or not (threshold is None or is_decimal(threshold)):
        raise MalformedAnswer("a prediction names its predictor, the method, the query and the threshold.")
    if not isinstance(query, dict) or not all(
        v is None or (isinstance(v, str) and len(v) <= MOST) for v in query.values()
    ):
        raise MalformedAnswer("the query of a prediction has a text or null for every feature.")
    if set(result) != {"value"} or not is_decimal(result["value"]):
        raise MalformedAnswer("the result of a prediction is one decimal number.")
    low, high = (Fraction(0), Fraction(1)) if threshold is not None else _ends(answer)
    slack = (abs(low) + abs(high)) * ROUNDING
    if not low - slack <= Fraction(result["value"]) <= high + slack:
        raise MalformedAnswer("the result of a prediction lies outside of what it can be.")


def _ends(answer: Answer) -> tuple[Fraction, Fraction]:
    domain = answer.read_domain()
    scale, numbers = domain.lattice
    if isinstance(numbers, list):
        return Fraction(numbers[0], scale), Fraction(numbers[-1], scale)
    first, step = numbers
    return Fraction(first, scale), Fraction(first + step * (domain.k - 1), scale)


register(PREDICTION, check_prediction)
