"""ε, δ and bounds of e^ε: exact, rounded towards privacy, and hostile spellings answered at once."""

from __future__ import annotations

import random
import time
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from label_dp.errors import InvalidEpsilon
from label_dp.privacy import (
    ATTO,
    MAX_EPSILON_NANO,
    NANO,
    PER_EXAMPLE,
    ZERO,
    Delta,
    Epsilon,
    EpsilonSplit,
    PrivacyUnit,
    delta_string,
    exp_bounds,
    log_upper,
    parse_delta,
)


@pytest.mark.parametrize(
    ("value", "nano"),
    [
        ("0", 0),
        ("0.5", 500_000_000),
        ("1", NANO),
        (2, 2 * NANO),
        (0.1, 100_000_000),  # the shortest decimal of the float, not its binary neighbour
        (0.7, 700_000_000),
        (1e-9, 1),
        ("0.000000001", 1),
        ("1e-9", 1),
        ("0.100000000000", 100_000_000),  # zeros beyond the ninth place say nothing
        ("1000000", MAX_EPSILON_NANO),
        (Decimal("2.25"), 2_250_000_000),
    ],
)
def test_decimals_are_read_exactly(value: object, nano: int) -> None:
    assert Epsilon.parse(value).nano == nano  # type: ignore[arg-type]  # hostile on purpose


@pytest.mark.parametrize(
    "value",
    [
        "",
        "one",
        "0x1",
        "1,5",
        "nan",
        "NaN",
        "-nan",
        "inf",
        "-inf",
        "Infinity",
        "-1",
        "-0.000000001",
        "-0",
        "0e999999999",
        "0.0000000001",
        "1.0000000001",
        "1000000.000000001",
        "1e7",
        "1e-10",
        0.1 + 0.2,
        float("nan"),
        float("inf"),
        -1,
        True,
        False,
        None,
        [],
        {},
        b"1",
        1j,
    ],
)
def test_everything_else_is_refused_without_quoting_it(value: object) -> None:
    with pytest.raises(InvalidEpsilon) as refusal:
        Epsilon.parse(value, name="the budget")  # type: ignore[arg-type]  # hostile on purpose
    assert refusal.value.code == "invalid-epsilon"
    assert refusal.value.detail.startswith("the budget ")
    assert refusal.value.detail.endswith(".")


@pytest.mark.parametrize(
    "bomb",
    [
        "1e-999999999",
        "1e999999999",
        "-1e999999999",
        "1e-999999999999999999",
        "1e9999999999999999999999",
        "9" * 100000,
        "0." + "1" * 100000,
        "0e-999999999",
    ],
)
def test_exponent_bombs_are_refused_at_once(bomb: str) -> None:
    start = time.process_time()
    with pytest.raises(InvalidEpsilon):
        Epsilon.parse(bomb)
    with pytest.raises(InvalidEpsilon):
        parse_delta(bomb)
    assert time.process_time() - start < 0.5


def test_zero_is_an_epsilon_but_not_a_positive_one() -> None:
    assert Epsilon.parse("0") == ZERO
    assert not ZERO
    for zero in ("0", "0.000000000", "0e999", 0, 0.0):
        with pytest.raises(InvalidEpsilon, match="greater than zero"):
            Epsilon.parse(zero, positive=True)


@pytest.mark.parametrize("nano", [-1, MAX_EPSILON_NANO + 1, True, 1.0, "1"])
def test_an_epsilon_cannot_be_built_out_of_range_or_from_a_float(nano: object) -> None:
    with pytest.raises(InvalidEpsilon):
        Epsilon(nano)  # type: ignore[arg-type]  # hostile on purpose


def test_sums_and_differences_are_exact_and_never_negative() -> None:
    tenth = Epsilon.parse("0.1")
    total = ZERO
    for _ in range(10):
        total = total + tenth
    assert total == Epsilon.parse("1")
    assert Epsilon.parse("1") - tenth == Epsilon.parse("0.9")
    assert tenth < total
    with pytest.raises(InvalidEpsilon):
        _ = tenth - total
    with pytest.raises(InvalidEpsilon):
        _ = Epsilon(MAX_EPSILON_NANO) + Epsilon(1)


@given(st.integers(0, MAX_EPSILON_NANO))
def test_text_round_trips(nano: int) -> None:
    text = str(Epsilon(nano))
    assert Epsilon.parse(text).nano == nano
    assert Fraction(text) == Fraction(nano, NANO)
    assert not text.endswith(".")
    assert "e" not in text.lower()


@given(st.fractions(min_value=0, max_value=1000))
def test_rounding_is_by_name(value: Fraction) -> None:
    up, down = Epsilon.round_up(value), Epsilon.round_down(value)
    assert down.fraction <= value <= up.fraction
    assert up.nano - down.nano == (0 if (value * NANO).denominator == 1 else 1)


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.integers(0, 10**12), st.integers(0, ATTO))
def test_a_split_survives_json_and_adds_up(clip: int, prior: int, randomize: int, delta: int) -> None:
    split = EpsilonSplit(Epsilon(clip), Epsilon(prior), Epsilon(randomize), delta)
    data = split.as_json()
    assert all(isinstance(v, str) for v in data.values())
    assert EpsilonSplit.from_json(data) == split
    assert split.total.nano == clip + prior + randomize


@pytest.mark.parametrize("part", ["clip", "prior", "randomize", "total"])
def test_a_split_that_does_not_add_up_is_refused(part: str) -> None:
    data = EpsilonSplit(Epsilon(1), Epsilon(2), Epsilon(3)).as_json()
    data[part] = "0.000000009"
    with pytest.raises(InvalidEpsilon, match="add up"):
        EpsilonSplit.from_json(data)


def test_delta_is_exact_to_eighteen_places() -> None:
    assert parse_delta("0.000000000000000001") == 1
    assert delta_string(parse_delta("1e-6")) == "0.000001"
    for wrong in ("0.0000000000000000001", "-0.1", "1.1", "nan", True):
        with pytest.raises(InvalidEpsilon):
            parse_delta(wrong)


def test_a_privacy_unit_says_what_it_protects() -> None:
    assert PER_EXAMPLE.as_json() == {"kind": "example", "column": None, "max_examples": None}
    assert PrivacyUnit("user", 3).as_json() == {"kind": "unit", "column": "user", "max_examples": 3}


def _settings() -> list[Fraction]:
    rng = random.Random(7)
    nanos = [0, 1, 2, 999_999_999, NANO, NANO + 1, 2 * NANO, 64 * NANO]
    nanos += [rng.randrange(1, 64 * NANO) for _ in range(300)] + [rng.randrange(1, NANO) for _ in range(300)]
    return [Fraction(n, NANO) for n in nanos]


def test_bounds_of_the_exponential_hold_against_sixty_digits() -> None:
    with localcontext() as context:
        context.prec = 60
        for x in _settings():
            exact = Fraction((Decimal(x.numerator) / Decimal(x.denominator)).exp())
            error = exact * Fraction(1, 10**55)  # of the sixty digits
            low, high = exp_bounds(x)
            assert low <= exact + error
            assert high >= exact - error
            assert (high - low) / low < Fraction(1, 2**90)


def test_beyond_sixty_four_the_lower_bound_saturates_below_the_truth() -> None:
    low, high = exp_bounds(Fraction(65))
    assert (low, high) == (Fraction(2**80), Fraction(0))
    assert Epsilon.parse("1000000").exp_lower() == 2**80


def test_a_negative_exponent_is_refused() -> None:
    with pytest.raises(InvalidEpsilon):
        exp_bounds(Fraction(-1))


@given(st.integers(1, 2**64), st.integers(1, 2**64))
def test_log_upper_is_the_smallest_nano_epsilon_that_reaches_the_ratio(a: int, b: int) -> None:
    ratio = Fraction(max(a, b), min(a, b))
    bound = log_upper(ratio)
    if ratio == 1:
        assert bound == ZERO
        return
    assert bound.exp_lower() >= ratio
    assert Epsilon(bound.nano - 1).exp_lower() < ratio


def test_log_upper_of_a_hair_above_one_is_not_zero() -> None:
    assert log_upper(Fraction(2**64 + 1, 2**64)).nano == 1
    assert log_upper(Fraction(1, 2)) == ZERO


@pytest.mark.parametrize("kind", [Epsilon, Delta])
def test_a_canonical_number_has_one_spelling(kind: type[Epsilon] | type[Delta]) -> None:
    for text in ("0", "0.5", "0.000000001"):
        assert str(kind.canonical(text)) == text
    for other in ("0.50", "00.5", "5e-1", " 0.5", "-0", "", "NaN", 0.5, 1, None, Epsilon.parse("0.5")):
        with pytest.raises(InvalidEpsilon):
            kind.canonical(other)
