"""An approximate median among the signed answers: a value with about a third of a batch's labels on either side.

`parameters`: the method; `result`: whether a value was found, and the value, one of the label domain.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from shared.errors import MalformedAnswer
from shared.message.answer import Answer, register, trusted_answer
from shared.message.signing import VerifyingKey

MEDIAN = "median"
METHODS = ("slices", "ranks")


@dataclass(frozen=True)
class Median:
    """A verified answer of this kind; `digest` is the SHA-256 of its payload."""

    answer: Answer
    digest: str

    @property
    def value(self) -> Decimal | None:
        """None: too few labels agreed on anything, which is an answer, and was paid for."""
        found = self.answer.result["median"]
        return None if found is None else Decimal(found)


def _check(answer: Answer) -> None:
    parameters, result = answer.parameters, answer.result
    if set(parameters) != {"method"} or parameters["method"] not in METHODS:
        raise MalformedAnswer("a median has one parameter, its method: slices or ranks.")
    if set(result) != {"found", "median"} or result["found"] is not (result["median"] is not None):
        raise MalformedAnswer("a median was found or not, and is a number or null.")
    if result["median"] is None:
        return
    text, domain = result["median"], answer.read_domain()
    if not isinstance(text, str) or len(text) > 400 or not text.isascii():
        raise MalformedAnswer("a median is a decimal number.")
    at = int(domain.values.searchsorted(float(Decimal(text))))
    if at >= domain.k or format(domain.value(at), "f") != text:
        raise MalformedAnswer("a median is a value of the label domain, in its one spelling.")


register(MEDIAN, _check)


def open_median(envelope: bytes, key: VerifyingKey, audience: str | None) -> Median:
    """A median from its envelope. Raises the VerificationFailed of the rule that was broken."""
    return Median(*trusted_answer(envelope, key, audience, MEDIAN))
