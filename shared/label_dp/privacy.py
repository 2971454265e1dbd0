"""ε and δ as exact integers, the split of ε, the privacy unit, and rational bounds of e^ε.

ε is a whole number of nano-ε (10⁻⁹) and δ of atto-δ (10⁻¹⁸), so that adding, comparing and charging are exact.
Source of the adjacency: label DP, replace-one (Chaudhuri & Hsu 2011; Ghazi et al. 2022, Definition 2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, total_ordering

from label_dp.errors import InvalidEpsilon
from label_dp.numbers import DECIMAL, BadSpelling, decimal_of
from label_dp.schemas.json_types import JsonObject

NANO = 10**9
ATTO = 10**18
MAX_EPSILON_NANO = 1_000_000 * NANO


def _scaled(value: str | int | float | Decimal, scale: int, name: str, maximum: int) -> int:
    """Return `value` times `scale` as an exact integer; refuses anything but a finite decimal of that many places."""
    places = len(str(scale)) - 1
    try:
        number = decimal_of(value)
    except BadSpelling:
        raise InvalidEpsilon(f"{name} must be {DECIMAL}.") from None
    if number.is_signed():
        raise InvalidEpsilon(f"{name} must not be negative.")
    if number > Decimal(maximum) / scale:
        raise InvalidEpsilon(f"{name} must be at most {maximum // scale}.")
    if int(number.as_tuple().exponent) < -places - 60:
        raise InvalidEpsilon(f"{name} has more than {places} decimals; round it up or down yourself.")
    scaled = Fraction(number) * scale
    if scaled.denominator != 1:
        raise InvalidEpsilon(f"{name} has more than {places} decimals; round it up or down yourself.")
    return scaled.numerator


def _decimal_string(units: int, scale: int) -> str:
    places = len(str(scale)) - 1
    whole, rest = divmod(units, scale)
    return f"{whole}.{rest:0{places}d}".rstrip("0").rstrip(".")


@total_ordering
@dataclass(frozen=True, slots=True)
class Epsilon:
    """Exact, non-negative ε: `nano` × 10⁻⁹. Build it with `Epsilon.parse("0.5")`."""

    nano: int

    def __post_init__(self) -> None:
        if not isinstance(self.nano, int) or isinstance(self.nano, bool) or not 0 <= self.nano <= MAX_EPSILON_NANO:
            raise InvalidEpsilon(f"ε must lie between 0 and {MAX_EPSILON_NANO // NANO}.")

    @classmethod
    def parse(cls, value: str | int | float | Decimal | Epsilon, *, positive: bool = False, name: str = "ε") -> Epsilon:
        """Parse a decimal with at most 9 places. Raises InvalidEpsilon (NaN, negative, too many places)."""
        nano = value.nano if isinstance(value, Epsilon) else _scaled(value, NANO, name, MAX_EPSILON_NANO)
        if positive and nano == 0:
            raise InvalidEpsilon(f"{name} must be greater than zero.")
        return cls(nano)

    @classmethod
    def canonical(cls, text: object) -> Epsilon:
        """Parse the canonical spelling, as of `str`. Raises InvalidEpsilon for any other."""
        if not isinstance(text, str) or str(epsilon := cls.parse(text)) != text:
            raise InvalidEpsilon("ε is a decimal number in its one spelling, such as 0.5.")
        return epsilon

    @classmethod
    def round_up(cls, value: Fraction) -> Epsilon:
        """Return the smallest representable ε that is at least `value`: for charges and bounds."""
        return cls(math.ceil(value * NANO))

    @classmethod
    def round_down(cls, value: Fraction) -> Epsilon:
        """Return the largest representable ε that is at most `value`: for parts of a budget."""
        return cls(math.floor(value * NANO))

    @property
    def fraction(self) -> Fraction:
        return Fraction(self.nano, NANO)

    def __float__(self) -> float:
        return self.nano / NANO

    def __str__(self) -> str:
        return _decimal_string(self.nano, NANO)

    def __add__(self, other: Epsilon) -> Epsilon:
        return Epsilon(self.nano + other.nano)

    def __sub__(self, other: Epsilon) -> Epsilon:
        return Epsilon(self.nano - other.nano)

    def __lt__(self, other: Epsilon) -> bool:
        return self.nano < other.nano

    def __bool__(self) -> bool:
        return self.nano > 0

    def exp_lower(self) -> Fraction:
        """Return a rational that is at most e^ε, within a relative 2⁻⁹⁰; saturates at 2⁸⁰ (more than any weight
        needs)."""
        return exp_bounds(self.fraction)[0]

    def exp_upper(self) -> Fraction:
        """Return a rational that is at least e^ε, within a relative 2⁻⁹⁰. Not for ε > 64."""
        return exp_bounds(self.fraction)[1]


ZERO = Epsilon(0)


@lru_cache(maxsize=4096)
def exp_bounds(x: Fraction) -> tuple[Fraction, Fraction]:
    """Rationals (lower, upper) with lower ≤ e^x ≤ upper, x ≥ 0, relative width below 2⁻⁹⁰.

    Fixed-point Taylor series of e^(x/2^h), every operation rounded down (up), then h squarings. For x > 64 only
    the lower bound 2⁸⁰ is meaningful; the upper bound is 0 and must not be used.
    """
    if x < 0:
        raise InvalidEpsilon("ε must not be negative.")
    if x > 64:
        return Fraction(1 << 80), Fraction(0)
    bits, halvings = 192, 8
    one = 1 << bits
    z = x / (1 << halvings)
    z_low = (z.numerator << bits) // z.denominator
    z_high = -((-z.numerator << bits) // z.denominator)
    low = term_low = high = term_high = one
    n = 0
    while term_high > 1:
        n += 1
        term_low = term_low * z_low // (one * n)
        term_high = -(-term_high * z_high // (one * n))
        low += term_low
        high += term_high
    high += 2  # the tail of the series is below the last term, which is at most one unit
    for _ in range(halvings):
        low = low * low >> bits
        high = -(-high * high >> bits)
    return Fraction(low, one), Fraction(high, one)


def log_upper(ratio: Fraction) -> Epsilon:
    """The smallest nano-ε whose e^ε provably reaches `ratio` ≥ 1: the exact upper bound of a channel's ε."""
    if ratio <= 1:
        return ZERO
    guess = (math.log(ratio.numerator) - math.log(ratio.denominator)) * NANO
    nano = max(0, int(guess) - 2)
    while exp_bounds(Fraction(nano, NANO))[0] < ratio:
        nano += 1
    return Epsilon(nano)


def parse_delta(value: str | int | float | Decimal) -> int:
    """δ in whole atto-δ (10⁻¹⁸), exact. Raises InvalidEpsilon."""
    return _scaled(value, ATTO, "δ", ATTO)


def epsilon_string(nano: int) -> str:
    """Format nano-ε as a decimal string: also sums that no ε of a charge may reach."""
    return _decimal_string(nano, NANO)


def delta_string(atto: int) -> str:
    """Format atto-δ as a decimal string."""
    return _decimal_string(atto, ATTO)


@dataclass(frozen=True, slots=True, order=True)
class Delta:
    """An exact δ: `atto` × 10⁻¹⁸. Build it with `Delta.parse("0.000001")`."""

    atto: int

    @classmethod
    def parse(cls, value: str | int | float | Decimal) -> Delta:
        """Exact δ from a decimal with at most 18 places. Raises InvalidEpsilon."""
        return cls(parse_delta(value))

    @classmethod
    def canonical(cls, text: object) -> Delta:
        """Exact δ from its one spelling, as `str` gives it. Raises InvalidEpsilon for all else."""
        if not isinstance(text, str) or str(delta := cls.parse(text)) != text:
            raise InvalidEpsilon("δ is a decimal number in its one spelling, such as 0.000001.")
        return delta

    @property
    def fraction(self) -> Fraction:
        return Fraction(self.atto, ATTO)

    def __str__(self) -> str:
        return delta_string(self.atto)

    def __bool__(self) -> bool:
        return self.atto > 0


NO_DELTA = Delta(0)


@dataclass(frozen=True, slots=True)
class EpsilonSplit:
    """ε = ε_clip + ε_prior + ε_randomize, each exact; δ is 0 unless a mechanism says otherwise."""

    clip: Epsilon
    prior: Epsilon
    randomize: Epsilon
    delta_atto: int = 0

    @property
    def total(self) -> Epsilon:
        return self.clip + self.prior + self.randomize

    def as_json(self) -> dict[str, str]:
        return {
            "clip": str(self.clip),
            "prior": str(self.prior),
            "randomize": str(self.randomize),
            "total": str(self.total),
            "delta": delta_string(self.delta_atto),
        }

    def as_signed(self) -> dict[str, str]:
        """As `as_json`, in the order of the canonical bytes."""
        return dict(sorted(self.as_json().items()))

    @classmethod
    def from_json(cls, data: dict[str, str]) -> EpsilonSplit:
        """Inverse of `as_json`; refuses a total that is not the sum of its parts."""
        clip, prior, randomize = (Epsilon.parse(data[part]) for part in ("clip", "prior", "randomize"))
        split = cls(clip, prior, randomize, parse_delta(data["delta"]))
        if str(split.total) != data["total"]:
            raise InvalidEpsilon("The parts of the ε split do not add up to its total.")
        return split


@dataclass(frozen=True, slots=True)
class PrivacyUnit:
    """What ε protects: one example's label, or all labels of one unit with at most `max_examples` of them."""

    unit_column: str | None = None
    max_examples: int | None = None

    def bound(self, epsilon: Epsilon) -> str | None:
        """ε per unit, as an exact decimal, where no example has spent more than `epsilon`; None without a unit.

        At most N examples of a unit keep their label, so by group privacy and composition Σ c_b·ε_b ≤ N · max ε_b.
        """
        return None if self.max_examples is None else _decimal_string(self.max_examples * epsilon.nano, NANO)

    def bound_delta(self, epsilon: Epsilon, delta_atto: int) -> int | None:
        """atto-δ per unit that goes with `bound`, rounded up, at most 1; None without a unit.

        N examples that differ take N steps of (ε, δ): δ·(1 + e^ε + … + e^((N−1)ε)) ≤ δ·N·e^((N−1)ε) (group privacy;
        Vadhan 2017, lemma 2.2).
        """
        if self.max_examples is None:
            return None
        if not delta_atto or self.max_examples == 1:
            return delta_atto
        exponent = (self.max_examples - 1) * epsilon.fraction
        if exponent > 64:
            return ATTO
        return min(ATTO, math.ceil(delta_atto * self.max_examples * exp_bounds(exponent)[1]))

    def beyond(self, examples: int, of: int, missing: str | None) -> str:
        """How many examples have no label because of the bound, as a sentence; empty where none has."""
        if not examples:
            return ""
        share = 100 * examples / of
        each = f"the {self.max_examples:,} that one {self.unit_column} may have over the population's lifetime"
        then = "cannot be sealed without a missing-label value" if missing is None else f"count as {missing}"
        return f"{examples:,} of {of:,} examples ({share:.{0 if share >= 1 else 2}f} %) are beyond {each}: they {then}."

    def as_json(self) -> JsonObject:
        return {
            "kind": "unit" if self.unit_column else "example",
            "column": self.unit_column,
            "max_examples": self.max_examples,
        }


PER_EXAMPLE = PrivacyUnit()
