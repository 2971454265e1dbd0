"""Channels: their weights are read exactly, and their ε is proved from them in integers."""

from __future__ import annotations

import itertools
import re
from fractions import Fraction
from typing import Any

from .exact import NANO, N, exp_lower, whole
from .noise import check_exponential, check_noise
from .refusal import refuse

SIGNED = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?", re.ASCII)


def labels_of(domain: object) -> int:
    """k, the number of labels of a domain `{"range": "LO:HI:STEP"}` or `{"values": [...]}`."""
    if isinstance(domain, dict) and isinstance(domain.get("values"), list) and domain["values"]:
        return len(domain["values"])
    parts = domain.get("range", "").split(":") if isinstance(domain, dict) and isinstance(domain["range"], str) else []
    if len(parts) not in (2, 3) or not all(len(p) <= 400 and SIGNED.fullmatch(p) for p in parts):
        refuse("the label domain cannot be read")
    low, high = Fraction(parts[0]), Fraction(parts[1])
    step = Fraction(parts[2]) if len(parts) == 3 else Fraction(1)
    if step <= 0 or high < low or ((high - low) / step).denominator != 1:
        refuse("the label domain is not a range")
    return int((high - low) / step) + 1


def check_channel(channel: Any, domain: Any, nano: int) -> str:
    """A sentence on why every output is at most e^ε times likelier under one label than under another; or a refusal.

    `channel` and `domain` are members of the manifest, `nano` is ε in 1/10⁹.
    """
    kind, bound = channel["kind"], exp_lower(nano)
    if kind == "additive":
        return _check_additive(channel, domain, nano)
    if whole(channel["N"]) != N:
        refuse("the weights are not out of 2^64")
    if kind in ("laplace", "staircase"):
        return check_noise(channel, nano)
    if kind == "exponential":
        return check_exponential(channel, nano)
    if kind == "dense":
        rows = [[whole(w) for w in row] for row in channel["weights"]]
        _check_rows(rows, labels_of(domain), channel, bound)
        return f"{len(rows)} × {len(rows[0])} weights: every column's largest ≤ e^ε · smallest"
    if kind == "knots":
        return _check_knots(channel, labels_of(domain), bound)
    if kind not in ("rr", "one-bit", "rr-with-prior"):
        refuse("the kind of the channel is unknown")
    return _check_two_weights(channel, domain, bound)


def _check_additive(channel: Any, domain: Any, nano: int) -> str:
    scale = Fraction(whole(channel["scale_numerator"]), whole(channel["scale_denominator"]))
    k = labels_of(domain)
    if scale <= 0 or Fraction(k - 1) / scale > Fraction(nano, NANO):
        refuse("the noise is too narrow for the stated ε")
    return f"noise of scale {scale} steps over {k} labels: (k − 1)/scale ≤ ε"


def _check_rows(rows: list[list[int]], count: int, channel: Any, bound: Fraction) -> None:
    """`count` rows of weights, one weight per output."""
    if len(rows) != count or any(len(r) != len(channel["outputs"]) or sum(r) != N for r in rows):
        refuse("the rows of the channel do not sum to 2^64, or one is missing")
    if any(min(column) < 1 or max(column) > bound * min(column) for column in zip(*rows, strict=True)):
        refuse("the channel does not keep the stated ε")


def _check_knots(channel: Any, labels: int, bound: Fraction) -> str:
    """Rows of integer weights at some labels; labels between two of them have mixtures of their rows."""
    knots = [whole(i) for i in channel["knots"]]
    rising = all(x < y for x, y in itertools.pairwise(knots))
    if len(knots) < 2 or knots[0] != 0 or knots[-1] != labels - 1 or not rising:
        refuse("the knots of the channel do not rise from the first to the last label")
    rows = [[whole(w) for w in row] for row in channel["weights"]]
    _check_rows(rows, len(knots), channel, bound)
    said = f"{len(rows)} × {len(rows[0])} weights at knots: every column's largest ≤ e^ε · smallest"
    return said + "; others are mixtures"


def _check_two_weights(channel: Any, domain: Any, bound: Fraction) -> str:
    """Randomized response: an output has weight A under its own labels and B under all others."""
    kind = channel["kind"]
    a, b = whole(channel["A"]), whole(channel["B"])
    d = {"rr": len(channel.get("outputs", ())), "rr-with-prior": len(channel.get("kept", ()))}.get(kind, 2)
    if not 1 <= b <= a or a + (d - 1) * b != N:
        refuse("the weights A and B of the channel do not sum to 2^64")
    if kind == "rr":
        edges = [whole(e) for e in channel["boundaries"]]
        rising = all(x < y for x, y in itertools.pairwise(edges))
        if len(edges) != d + 1 or edges[0] != 0 or edges[-1] != labels_of(domain) or not rising:
            refuse("the bins of the channel do not cut the label domain into pieces")
    if kind == "rr-with-prior":
        kept = [whole(i) for i in channel["kept"]]
        rising = all(x < y for x, y in itertools.pairwise(kept))
        if d < 2 or kept[-1] >= labels_of(domain) or not rising:
            refuse("the kept labels of the channel are not labels of the domain in rising order")
        # labels that are not kept have N div d and one more, which lie between B and A
    if d > 1 and a > bound * b:
        refuse("the channel does not keep the stated ε: A > e^ε · B")
    return f"A ≤ e^ε · B with A + {d - 1}·B = 2^64"
