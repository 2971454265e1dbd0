"""A median: one value of the label domain in its one spelling, or none found, which costs δ."""

from __future__ import annotations

from fractions import Fraction

from .exact import ATTO
from .kind import Answer, Kind
from .members import members, one_of
from .refusal import refuse

RANKS, SLICES = "ranks", "slices"
BASE = 128  # values of a domain up to which slices need no recursion, and no δ
LEAST_POINTS, LARGEST_EPSILON = 4, 64
REPLACE_ONE = "replace one example's label; ids, their number and everything that was sent beside them are public"


def check_median(given: Answer) -> str:
    """A line for the result of a median."""
    method = one_of(members(given.parameters, ("method",), "a median")["method"], (SLICES, RANKS), "the method")
    result = members(given.result, ("found", "median"), "the result of a median")
    if result["found"] is not (result["median"] is not None):
        refuse("a median was found or not, and is a number or null")
    n, delta = given.n, Fraction(given.split[3], ATTO)
    middle = n - 2 * (n // 3) if n > 2 else n
    check_interval(given.domain.k, middle, given.epsilon, delta, by_ranks=method == RANKS)
    given.check(given.epsilon, delta, REPLACE_ONE)
    text = result["median"]
    if text is None:
        if not delta:
            refuse("a median that costs no δ is always found")
        return f"median by {method}: none found"
    if not isinstance(text, str) or len(text) > 400 or not given.domain.holds(text):
        refuse("the median is not a value of the label domain, in its one spelling")
    return f"median by {method}: {text}, a value of the label domain"


def check_interval(size: int, n: int, epsilon: Fraction, delta: Fraction, *, by_ranks: bool) -> None:
    """A point among `size` values, found by n examples, costs ε; and a δ exactly where slices need a recursion."""
    recursive = not by_ranks and 1 << (size - 1).bit_length() > BASE
    if not 0 < epsilon <= LARGEST_EPSILON or recursive != (delta > 0) or delta >= 1:
        refuse("a point costs an ε of at most 64, and a δ exactly where it is found by recursion")
    if n < (LEAST_POINTS if recursive else 1):
        refuse("there are too few points for slices")


KIND = Kind("median", check_median)
