"""Exact numbers: canonical decimals, whole-number weights, and a rational bound of e^ε that is never too large."""

from __future__ import annotations

import re
from fractions import Fraction

from .refusal import refuse

N = 1 << 64  # the weights of all outputs under one label sum to N
NANO, ATTO = 10**9, 10**18  # ε is counted in 1/NANO, δ in 1/ATTO
INTEGER = re.compile(r"0|[1-9][0-9]{0,399}", re.ASCII)
DECIMAL = re.compile(r"(0|[1-9][0-9]*)(\.[0-9]*[1-9])?", re.ASCII)


def units(text: object, scale: int, what: str) -> int:
    """A canonical decimal string as a whole number of 1/scale."""
    if not isinstance(text, str) or len(text) > 60 or DECIMAL.fullmatch(text) is None:
        refuse(f"{what} is not a canonical decimal number")
    exact = Fraction(text) * scale
    if exact.denominator != 1:
        refuse(f"{what} has too many decimals")
    return exact.numerator


def decimal(count: int, scale: int = NANO) -> str:
    """count/scale in its canonical spelling; the scale is a power of ten."""
    return f"{count // scale}.{count % scale:0{len(str(scale)) - 1}d}".rstrip("0").rstrip(".")


def whole(text: object) -> int:
    """A weight, position or other whole number of a channel; they are written as text of at most 400 digits."""
    if not isinstance(text, str) or INTEGER.fullmatch(text) is None:
        refuse("a weight of the channel is not a whole number in canonical form")
    return int(text)


def exp_lower(nano: int) -> Fraction:
    """A rational that is at most e^ε: partial sums of its series, every term rounded down. From ε = 64 on, e^64."""
    x, one = Fraction(min(nano, 64 * NANO), NANO), 1 << 320
    total = term = one
    n = 0
    while term:
        n += 1
        term = term * x.numerator // (x.denominator * n)
        total += term
    return Fraction(total, one)
