"""Channels: their members and weights are read exactly, and their ε is proved from them in integers."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

from .domains import Domain
from .exact import N, exp_lower, whole
from .members import listed, members
from .noise import check_exponential, check_noise
from .refusal import refuse
from .tables import MOST_DENSE, check_dense, check_knots, floats, rising

MOST_OUTPUTS, MOST_KEPT = 1 << 16, 1 << 15
MOST_DIGITS = 40
END = re.compile(r"-?(0|[1-9][0-9]{0,39})(\.[0-9]{1,40})?", re.ASCII)


def check_channel(channel: Any, domain: Domain, nano: int) -> str:
    """A sentence on why every output is at most e^ε times likelier under one label than under another; or a refusal.

    `channel` is a member of the manifest, `nano` is ε in 1/10⁹.
    """
    kind = channel.get("kind") if isinstance(channel, dict) else None
    if not isinstance(kind, str) or kind not in KINDS:
        refuse("the kind of the channel is unknown")
    check, names = KINDS[kind]
    members(channel, {"kind", "N", *names.split()}, "the channel")
    if channel["N"] != str(N):
        refuse("the weights are not out of 2^64")
    return check(channel, domain, nano)


def _two_weights(channel: Any, d: int) -> tuple[int, int]:
    a, b = whole(channel["A"]), whole(channel["B"])
    if not 1 <= b <= a or a + (d - 1) * b != N:
        refuse("the weights A and B of the channel do not sum to 2^64")
    return a, b


def _prove(largest: int, smallest: int, nano: int) -> None:
    if largest > exp_lower(nano) * smallest:
        refuse("the channel does not keep the stated ε: its largest weight exceeds e^ε times its smallest")


def _bins(channel: Any, domain: Domain, nano: int) -> str:
    """Randomized response: an output has weight A under its own labels and B under all others."""
    outputs = floats(channel["outputs"], 1, MOST_OUTPUTS)
    d = len(outputs)
    a, b = _two_weights(channel, d)
    edges = [whole(e) for e in listed(channel["boundaries"], d + 1, d + 1, "the list of bin boundaries")]
    if edges[0] != 0 or edges[-1] != domain.k or not rising(edges) or not rising(outputs):
        refuse("the bins of the channel do not cut the label domain into pieces, or its outputs do not rise")
    for mean, (first, stop) in zip(floats(channel["bin_means"], d, d), pairwise(edges), strict=True):
        if not domain.number(first) <= mean <= domain.number(stop - 1):
            refuse("a bin's mean lies outside of the bin")
    if d > 1:
        _prove(a, b, nano)
    return f"A ≤ e^ε · B with A + {d - 1}·B = 2^64"


def _top_labels(channel: Any, domain: Domain, nano: int) -> str:
    """As of bins; labels that are not kept have N div d and one more on all outputs, which lie between B and A."""
    kept = [whole(i) for i in listed(channel["kept"], 2, MOST_KEPT, "the list of kept labels")]
    if kept[-1] >= domain.k or not rising(kept):
        refuse("the kept labels of the channel are not labels of the domain in rising order")
    _prove(*_two_weights(channel, len(kept)), nano)
    return f"A ≤ e^ε · B with A + {len(kept) - 1}·B = 2^64"


def _subsets(channel: Any, domain: Domain, nano: int) -> str:
    """All labels have one row, shifted: weight A on r subsets, B + 1 on some of the others and B on the rest."""
    k = domain.k
    lists = listed(channel["blocks"], 1, MOST_DENSE // k**2, "the list of base blocks")
    blocks = [[whole(x) for x in listed(block, 1, k - 1, "a base block")] for block in lists]
    if any(block[0] != 0 or block[-1] >= k or not rising(block) for block in blocks):
        refuse("a base block of the channel is not a list of positions of the domain that rises from 0")
    r = sum(map(len, blocks))
    others = k * len(blocks) - r
    a, b = whole(channel["A"]), whole(channel["B"])
    spare = N - r * a - others * b
    if not 1 <= b <= a or not 0 <= spare < others or b + (spare > 0) > a:
        refuse("the weights A and B of the channel do not sum to 2^64")
    _prove(a, b, nano)
    return f"A ≤ e^ε · B with {r}·A + {others}·B + {spare} = 2^64"


def _one_bit(channel: Any, domain: Domain, nano: int) -> str:
    """The upper one of two outputs has a weight that rises with the label, clipped to low … high, from B to A."""
    a, b = _two_weights(channel, 2)
    low, high = _end(channel["low"]), _end(channel["high"])
    if low >= high or a == b:
        refuse("the lower end of the clipping is not below its upper end, or the weights are equal")
    centre, half = (low + high) / 2, (high - low) / 2 * Fraction(N, a - b)
    if not float(centre - half) < float(centre + half):
        refuse("the two outputs are the same 64-bit float")
    ends = []
    for label in (domain.low, domain.high):
        share = (min(max(label, low), high) - low) / (high - low)
        ends.append(b + int((2 * (a - b) * share + 1) // 2))
    _prove(ends[1], ends[0], nano)
    _prove(N - ends[0], N - ends[1], nano)
    return "one bit: the weights of either output under all labels differ by at most e^ε"


def _end(text: object) -> Fraction:
    if not isinstance(text, str) or END.fullmatch(text) is None:
        refuse("an end of the clipping is not a decimal number")
    number = Decimal(text)
    if abs(number.adjusted()) >= MOST_DIGITS or -int(number.as_tuple().exponent) > MOST_DIGITS:
        refuse("an end of the clipping has too many digits")
    return Fraction(number)


KINDS: dict[str, tuple[Callable[[Any, Domain, int], str], str]] = {
    "rr": (_bins, "A B boundaries outputs bin_means"),
    "one-bit": (_one_bit, "A B low high"),
    "laplace": (check_noise, "epsilon cells reach peak"),
    "staircase": (check_noise, "epsilon cells reach peak width"),
    "exponential": (check_exponential, "decay cells"),
    "knots": (check_knots, "knots outputs weights residual_bias"),
    "rr-with-prior": (_top_labels, "A B kept"),
    "subset-selection": (_subsets, "A B blocks"),
    "dense": (check_dense, "outputs weights"),
}
