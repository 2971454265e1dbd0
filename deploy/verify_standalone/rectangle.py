"""A rectangle: for each feature two places of its range, and the numbers there."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from .costs import Step, together
from .exact import ATTO, NANO, plain_float, spelled, units
from .features import BOUND, WHOLE_EXAMPLE, check_features, ends
from .kind import Answer, Kind
from .median import RANKS, SLICES, check_interval
from .members import count, listed, members, one_of
from .refusal import refuse

PARAMETERS = (
    *("threshold", "features", "examples", "levels", "method", "slice", "slice_noise"),
    *("epsilon_per_side", "delta_per_side", *BOUND),
)
MOST_LEVELS = (1 << 32) - 1


def check_rectangle(given: Answer) -> str:
    """A line for the sides of a rectangle."""
    p, result = members(given.parameters, PARAMETERS, "a rectangle"), members(given.result, ("found", "sides"), "it")
    features = check_features(p["features"])
    if any("range" not in feature for feature in features):
        refuse("the features of a rectangle are numbers with a range")
    low, high = given.domain.ends
    if not low < plain_float(p["threshold"], "the threshold") <= high:
        refuse("the threshold tells nothing of the label domain")
    levels = count(p["levels"], 1, MOST_LEVELS, "the number of levels")
    delta = _check_cost(given, p, 2 * len(features))
    sides = listed(result["sides"], len(features), len(features), "the list of sides")
    missing = 0
    for feature, side in zip(features, sides, strict=True):
        members(side, ("name", "first", "last", "from", "to"), "a side")
        if side["name"] != feature["name"]:
            refuse("a rectangle has two sides for every feature, in their order")
        missing += _check_end(side["first"], side["from"], feature, levels)
        missing += _check_end(side["last"], side["to"], feature, levels)
    if result["found"] is not (missing == 0) or (missing and not delta):
        refuse("a rectangle was found where all of its sides were; each is, where it costs no δ")
    how = f"of {len(features)} features by {p['method']}, its cost by {p['bound']}"
    return f"rectangle {how}" if not missing else f"rectangle {how}: not all sides found"


def _check_cost(given: Answer, p: Any, sides: int) -> Fraction:
    """δ of a side."""
    method = one_of(p["method"], (RANKS, SLICES), "the method")
    n, size = count(p["examples"], 1, given.n, "the number of examples"), count(p["slice"], 1, 1 << 53, "a slice")
    count(p["slice_noise"], 0, 1 << 53, "the noise of slices")
    epsilon = Fraction(units(p["epsilon_per_side"], NANO, "ε of a side"), NANO)
    delta = Fraction(units(p["delta_per_side"], ATTO, "δ of a side"), ATTO)
    if n < sides * size:
        refuse("a rectangle needs at least as many examples as its slices have together")
    check_interval(p["levels"] + 1, size, epsilon, delta, by_ranks=method == RANKS)
    given.check(*together(p, Step(epsilon, delta, epsilon), sides), WHOLE_EXAMPLE)
    return delta


def _check_end(place: Any, number: Any, feature: dict[str, Any], levels: int) -> int:
    """How many are missing: 0 or 1."""
    if place is None:
        if number is not None:
            refuse("a side that was not found has no number")
        return 1
    low, high = ends(feature)
    if number != spelled(low + (high - low) * (count(place, 0, levels, "a place") / levels)):
        refuse("a side is told as another number than that of its place")
    return 0


KIND = Kind("rectangle", check_rectangle)
