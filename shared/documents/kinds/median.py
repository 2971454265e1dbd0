"""An approximate median among the signed answers: a value with about a third of a batch's labels on either side.

`parameters`: the method; `result`: whether a value was found, and the value, one of the label domain.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import Field

from shared.costs.sessions import RANKS, SLICES, interval_cost
from shared.costs.slices import Cost
from shared.documents.adjacency import REPLACE_ONE
from shared.documents.answer import Answer, Kind, check_charge
from shared.documents.members import Strict
from shared.documents.signing import VerifyingKey
from shared.errors import MalformedAnswer
from shared.privacy import ATTO, Epsilon

MEDIAN = "median"
METHODS = (SLICES, RANKS)


class MedianParameters(Strict):
    method: Literal["slices", "ranks"]


class MedianResult(Strict):
    found: bool
    median: Annotated[str, Field(max_length=400)] | None


def median_cost(method: str, n: int, k: int, epsilon: Epsilon, delta_atto: int) -> Cost:
    """Of a median of n labels of k values. Raises InvalidEpsilon, InvalidInput."""
    middle = n - 2 * (n // 3) if n > 2 else n
    return interval_cost(k, middle, epsilon.fraction, Fraction(delta_atto, ATTO), by_ranks=method == RANKS)


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


def _rule(answer: Answer, given: MedianParameters, said: MedianResult) -> None:
    if said.found is not (said.median is not None):
        raise MalformedAnswer("a median was found or not, and is a number or null.")
    split, domain = answer.split, answer.read_domain()
    cost = median_cost(given.method, answer.n, domain.k, split.randomize, split.delta_atto)
    check_charge(answer, cost, REPLACE_ONE)
    if said.median is None:
        if not split.delta_atto:
            raise MalformedAnswer("a median that costs no δ is always found.")
        return
    if not said.median.isascii():
        raise MalformedAnswer("a median is a decimal number.")
    at = int(domain.values.searchsorted(float(Decimal(said.median))))
    if at >= domain.k or format(domain.value(at), "f") != said.median:
        raise MalformedAnswer("a median is a value of the label domain, in its one spelling.")


KIND = Kind(MEDIAN, MedianParameters, MedianResult, _rule)


def open_median(envelope: bytes, key: VerifyingKey, audience: str | None) -> Median:
    """A median from its envelope. Raises the VerificationFailed of the rule that was broken."""
    return Median(*KIND.trusted(envelope, key, audience))
