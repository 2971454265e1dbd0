"""A prediction among the signed answers: its query, its predictor, and the drawn value.

`parameters` hold the query in its canonical form, so the asker can see what was answered: a number is the place of its
range that it was rounded to; a missing or unlisted value is null. `result` is one decimal: with a `threshold` whether
(0, 1) or how likely the label reaches it, else a value between the ends of the label domain.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from label_dp.companions.costs.charge import check_charge
from label_dp.companions.costs.slices import Cost
from label_dp.companions.kinds.own_features import FloatText, Name, PlainText
from label_dp.companions.kinds.prediction_methods import FORMS, METHODS, Noise, top
from label_dp.companions.maps.places import number_text
from label_dp.documents.kind import Kind
from label_dp.documents.members import Strict
from label_dp.errors import MalformedAnswer

if TYPE_CHECKING:
    from label_dp.documents.answer import Answer
    from label_dp.documents.signing import VerifyingKey
    from label_dp.domain import Domain

PREDICTION = "prediction"


class PredictionParameters(Strict):
    """Parameters; `query` holds a text or null for every feature."""

    predictor: Annotated[str, Field(min_length=1, max_length=200)]
    method: str
    query: dict[str, Name | None]
    threshold: PlainText | None


class PredictionResult(Strict):
    """Result: the predicted value."""

    value: FloatText


@dataclass(frozen=True)
class Prediction:
    """Verified prediction, the digest of its document, and its envelope as received."""

    answer: Answer
    digest: str
    envelope: bytes

    @property
    def query(self) -> dict[str, str | None]:
        query: dict[str, str | None] = self.answer.parameters["query"]
        return query

    @property
    def value(self) -> float:
        return float(self.answer.result["value"])


def _rule(answer: Answer, parameters: PredictionParameters, result: PredictionResult) -> None:
    method, domain, epsilon = METHODS.get(parameters.method), answer.domain, answer.epsilon.randomize
    if method is None or answer.mechanism.name != parameters.method:
        raise MalformedAnswer("the method of a prediction is unknown, or not that of its mechanism.")
    if domain.k < 2 or method.classifies != (parameters.threshold is not None):
        raise MalformedAnswer("a method that classifies has a threshold, and no other has one.")
    if parameters.threshold is not None and not domain.ends[0] < float(parameters.threshold) <= domain.ends[1]:
        raise MalformedAnswer("the threshold of a prediction tells nothing of the label domain.")
    check_charge(answer, Cost(epsilon.fraction), method.adjacency)
    facts = method.facts.model_validate(answer.mechanism.facts)
    if not epsilon or (isinstance(facts, Noise) and not facts.wide(epsilon)):
        raise MalformedAnswer("the noise of the mechanism is not that of its method at this ε.")
    if not _may_be(result.value, method.classifies, domain, top(facts)):
        raise MalformedAnswer("the result of a prediction is nothing that it can be.")


def _may_be(text: str, classifies: bool, domain: Domain, most: int) -> bool:
    """Check for the text of one of the `most` + 1 values that are equally spaced between the ends."""
    low, high = (Fraction(0), Fraction(1)) if classifies else (Fraction(repr(end)) for end in domain.ends)
    step = round((Fraction(text) - low) / (high - low) * most)
    return 0 <= step <= most and number_text(low + (high - low) * Fraction(step, most)) == text


KIND = Kind(PREDICTION, PredictionParameters, PredictionResult, _rule, facts=FORMS)


def open_prediction(envelope: bytes, key: VerifyingKey, audience: str | None) -> Prediction:
    """Open a prediction from its envelope. Raises the VerificationFailed of the violated rule."""
    answer, digest = KIND.trusted(envelope, key, audience)
    return Prediction(answer, digest, envelope)
