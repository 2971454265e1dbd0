"""Exact numbers: canonical decimals, whole-number weights, and rational bounds of e^x."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction

from .refusal import refuse

N = 1 << 64  # the weights of all outputs under one label sum to N
NANO, ATTO = 10**9, 10**18  # ε is counted in 1/NANO, δ in 1/ATTO
MOST = {NANO: 10**6, ATTO: 1}  # the largest ε, the largest δ
INTEGER = re.compile(r"0|[1-9][0-9]{0,399}", re.ASCII)
DECIMAL = re.compile(r"(0|[1-9][0-9]*)(\.[0-9]*[1-9])?", re.ASCII)
PLAIN = re.compile(r"(?!-0\Z)-?(0|[1-9][0-9]{0,319})(\.[0-9]{0,339}[1-9])?", re.ASCII)
FLOAT = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,30})?(e[+-]?[0-9]{1,3})?", re.ASCII)
LARGEST = 64  # the largest x of e^x


def units(text: object, scale: int, what: str) -> int:
    """A canonical decimal string as a whole number of 1/scale: an ε, or a δ."""
    if not isinstance(text, str) or len(text) > 60 or DECIMAL.fullmatch(text) is None:
        refuse(f"{what} is not a canonical decimal number")
    exact = Fraction(text) * scale
    if exact.denominator != 1:
        refuse(f"{what} has too many decimals")
    if exact > MOST[scale] * scale:
        refuse(f"{what} is too large")
    return exact.numerator


def decimal(count: int, scale: int = NANO) -> str:
    """count/scale in its canonical spelling; the scale is a power of ten."""
    return f"{count // scale}.{count % scale:0{len(str(scale)) - 1}d}".rstrip("0").rstrip(".")


def whole(text: object) -> int:
    """A weight, position or other whole number of a channel; they are written as text of at most 400 digits."""
    if not isinstance(text, str) or INTEGER.fullmatch(text) is None:
        refuse("a weight of the channel is not a whole number in canonical form")
    return int(text)


def plain(text: object, what: str) -> Fraction:
    """A decimal number in its one spelling, without an exponent."""
    if not isinstance(text, str) or PLAIN.fullmatch(text) is None:
        refuse(f"{what} is not a decimal number in its one spelling")
    return Fraction(text)


def shortest(text: object, what: str) -> float:
    """A finite 64-bit float in the shortest spelling that gives it back."""
    if not isinstance(text, str) or FLOAT.fullmatch(text) is None or repr(float(text)) != text:
        refuse(f"{what} is not the shortest spelling of a 64-bit float")
    return float(text)


def spelled(value: float | Fraction) -> str:
    """A 64-bit float as a plain decimal."""
    return format(Decimal(repr(float(value))).normalize() + 0, "f")


def plain_float(text: object, what: str) -> float:
    """A 64-bit float, spelled as a plain decimal."""
    number = float(plain(text, what))
    if spelled(number) != text:
        refuse(f"{what} is not the spelling of a 64-bit float")
    return number


def exp_bounds(x: Fraction) -> tuple[Fraction, Fraction]:
    """Rationals (low, high) around e^x, 0 ≤ x ≤ 64: partial sums of its series, every term rounded down by less than
    2^-160 of the sum in all."""
    one = 1 << 320
    total = term = one
    n = 0
    while term:
        n += 1
        term = term * x.numerator // (x.denominator * n)
        total += term
    return Fraction(total, one), Fraction(total + (total >> 160) + 1, one)


def exp_lower(nano: int) -> Fraction:
    """A rational that is at most e^ε. From ε = 64 on, e^64."""
    return exp_bounds(Fraction(min(nano, LARGEST * NANO), NANO))[0]


def log_upper(ratio: Fraction) -> int:
    """The smallest number of nano-ε whose e^ε is at least `ratio`, which is at most e^64."""
    if ratio <= 1:
        return 0
    nano = int((math.log(ratio.numerator) - math.log(ratio.denominator)) * NANO)
    while nano > 0 and exp_lower(nano - 1) >= ratio:
        nano -= 1
    while exp_lower(nano) < ratio:
        nano += 1
    return nano
