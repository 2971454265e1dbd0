"""An approximate median among the signed answers: a value with about a third of a batch's labels on either side.

`parameters`: the method; `result`: whether a value was found, and the value, one of the label domain.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from label_dp.companions.costs.charge import check_charge
from label_dp.companions.costs.sessions import RANKS, SLICES, interval_cost
from label_dp.companions.costs.slices import Cost
from label_dp.documents.kind import REPLACE_ONE, Facts, Kind
from label_dp.documents.members import ExactDelta, Strict
from label_dp.errors import MalformedAnswer
from label_dp.privacy import ATTO, Epsilon
from label_dp.schemas.base import Ask, whole
from label_dp.schemas.numbers import Decimalish

if TYPE_CHECKING:
    from label_dp.documents.answer import Answer
    from label_dp.documents.signing import VerifyingKey

MEDIAN = "median"
METHODS = (SLICES, RANKS)


class Median(Ask):
    """Answer with one approximate median of the labels, signed and charged to the ledger."""

    model_config = whole({"epsilon": "0.5"})

    epsilon: Decimalish = Field(description="ε of this median; the whole batch is charged.")
    delta: Decimalish = Field(default="0", description="δ of this median, of the lifetime δ; by slices only.")
    method: Literal["auto", "slices", "ranks"] = Field(
        default="auto",
        description="ranks (pure ε, fewer labels), slices (with a δ beyond 128 values), auto: slices if a δ is given.",
    )
    additional_release: bool = Field(default=False, description="Charge on top of what the batch carries already.")


class MedianParameters(Strict):
    """Parameters of a median."""

    method: Literal["slices", "ranks"]


class MedianResult(Strict):
    """Result: the median, if one was found."""

    found: bool
    median: Annotated[str, Field(max_length=400)] | None


class RanksFacts(Facts):
    """Facts by ranks: the error of the rank, exceeded once in 20 times."""

    rank_error_19_of_20: int


class SlicesFacts(Facts):
    """Facts by slices: the charged bound, how many labels lie beyond a slice, the depth of its recursion, and δ."""

    bound: str
    sliced_on_either_side: int
    levels: int
    delta: ExactDelta


def median_cost(method: str, n: int, k: int, epsilon: Epsilon, delta_atto: int) -> Cost:
    """Compute the cost of a median of n labels of k values. Raises InvalidEpsilon, InvalidInput."""
    middle = n - 2 * (n // 3) if n > 2 else n
    return interval_cost(k, middle, epsilon.fraction, Fraction(delta_atto, ATTO), by_ranks=method == RANKS)


@dataclass(frozen=True)
class VerifiedMedian:
    """Verified answer of this kind; `digest` is the SHA-256 of its payload."""

    answer: Answer
    digest: str

    @property
    def value(self) -> Decimal | None:
        """Median, or None if too few labels agreed, which is an answer and was charged."""
        text = self.answer.result["median"]
        return None if text is None else Decimal(text)


def _rule(answer: Answer, parameters: MedianParameters, result: MedianResult) -> None:
    if result.found is not (result.median is not None):
        raise MalformedAnswer("a median was found or not, and is a number or null.")
    split, domain = answer.epsilon, answer.domain
    cost = median_cost(parameters.method, answer.n, domain.k, split.randomize, split.delta_atto)
    check_charge(answer, cost, REPLACE_ONE)
    if result.median is None:
        if not split.delta_atto:
            raise MalformedAnswer("a median that costs no δ is always found.")
        return
    if not result.median.isascii():
        raise MalformedAnswer("a median is a decimal number.")
    at = int(domain.values.searchsorted(float(Decimal(result.median))))
    if at >= domain.k or format(domain.value(at), "f") != result.median:
        raise MalformedAnswer("a median is a value of the label domain, in its one spelling.")


KIND = Kind(MEDIAN, MedianParameters, MedianResult, _rule, Median, facts=(RanksFacts, SlicesFacts))


def open_median(envelope: bytes, key: VerifyingKey, audience: str | None) -> VerifiedMedian:
    """Open a median from its envelope. Raises the VerificationFailed of the violated rule."""
    return VerifiedMedian(*KIND.trusted(envelope, key, audience))
