"""A preview of a message on labels of two values: from n, ε and a rate that is assumed.

Randomized response that flips a label with probability q shows the higher value at the rate r = q + (1 − 2q)·p where
labels have it at the rate p. A row then tells of p the share (1 − 2q)²·p(1 − p)/(r(1 − r)) of what its label would
(Fisher's information), and the message has the standard error √(r(1 − r)/n)/(1 − 2q) of the overall rate.
"""

from __future__ import annotations

import math
from typing import Any

from label_dp.channels.base import N
from label_dp.channels.rr import RRChannel
from label_dp.errors import InvalidInput
from label_dp.numbers import BadSpelling, decimal_of
from label_dp.privacy import Epsilon, EpsilonSplit
from labels_party.mechanisms.prior import SENSITIVITY

EXAMPLES = ("0.001", "0.01", "0.1", "0.5")  # rates that are shown where none is assumed
FEWEST = 30  # labels of the rarer value that a model needs, without noise
PRIOR_SHARE = 100  # of ε, of the prior that is shown where none is bought
ASSUMED, SHOWN = "assumed by the owner", "examples; nothing is known of the labels"


def rates_of(asked: list[str], k: int) -> tuple[str, ...]:
    """The rates to show, as they were written. Raises InvalidInput for one that is none, or a domain of other than two
    labels."""
    if asked and k != 2:
        raise InvalidInput("`assume_rate` is a share of one of two values; this domain has another number of them.")
    for text in asked:
        try:
            right = 0 < decimal_of(text) < 1
        except BadSpelling:
            right = False
        if not right:
            raise InvalidInput("`assume_rate` is a number between 0 and 1, such as 0.001.")
    return tuple(asked) or EXAMPLES


def worth(
    channel: RRChannel, n: int, epsilon: Epsilon, split: EpsilonSplit, rates: tuple[str, ...], value: str
) -> dict[str, Any]:
    """What the message of n rows through `channel` is worth at each rate of `value`, the higher one, as it is read."""
    gap, flip = (channel.A - channel.B) / N, channel.B / N
    rows = [_at(float(decimal_of(rate)), rate, gap, flip, n) for rate in rates]
    prior = split.prior or Epsilon.round_down(epsilon.fraction / PRIOR_SHARE)
    return {
        "epsilon": str(epsilon),
        "value": value,
        "flip_probability": flip,
        "rates": rows,
        "prior_epsilon": str(prior),
        # of two noisy counts that are put onto the simplex: half their difference
        "prior_standard_error": SENSITIVITY / (float(prior) * n) if prior else None,
        "warnings": [_warning(epsilon, n, value, row) for row in rows if row["too_few"]],
    }


def _at(p: float, written: str, gap: float, flip: float, n: int) -> dict[str, Any]:
    r = flip + gap * p
    rows = n * gap * gap * p * (1.0 - p) / (r * (1.0 - r))
    rarer = rows * min(p, 1.0 - p)
    return {
        "rate": written,
        "rows_without_noise": rows,
        "rarer_without_noise": rarer,
        "standard_error": math.sqrt(r * (1.0 - r) / n) / gap if gap > 0 else None,
        "too_few": rarer < FEWEST,
    }


def _warning(epsilon: Epsilon, n: int, value: str, row: dict[str, Any]) -> str:
    share = format((decimal_of(row["rate"]) * 100).normalize(), "f")
    rows, rarer = _count(row["rows_without_noise"]), _count(row["rarer_without_noise"])
    return (
        f"At ε = {epsilon}, {n:,} labels of which {share} % have the value {value} tell as much as {rows} labels "
        f"without noise, {rarer} of them with the rarer value. A model needs about {FEWEST}: take more rows or more ε."
    )


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"
