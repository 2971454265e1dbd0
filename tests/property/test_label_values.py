"""A label that prints as a value of the domain is that value, in every type of column; every other one is rounded down,
by one step at most and in order."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from label_dp.domain import Domain
from label_dp.label_values import DOUBLE, HALF, SINGLE, positions, spelled, value_positions

FLOATS = {np.float64: DOUBLE, np.float32: SINGLE, np.float16: HALF}
STEPS = ("1", "0.1", "0.01", "0.05", "0.25", "0.3", "0.007", "2.5", "5", "100")
MOST_VALUES = 400  # of a domain, which lies up to 100,000 of its steps away from zero


@st.composite
def domains(draw: st.DrawFn) -> Domain:
    if draw(st.booleans()):
        cents = sorted(draw(st.sets(st.integers(-5000, 20_000), min_size=1, max_size=12)))
        return Domain.from_values([Decimal(cent) / 100 for cent in cents])
    step, k = Decimal(draw(st.sampled_from(STEPS))), draw(st.integers(2, MOST_VALUES))
    low = step * draw(st.one_of(st.integers(-500, 500), st.integers(-100_000, 100_000)))
    return Domain.parse(f"{low:f}:{low + step * (k - 1):f}:{step:f}")


def exact(domain: Domain) -> list[Fraction]:
    return [Fraction(domain.value(at)) for at in range(domain.k)]


def located(labels: np.ndarray, domain: Domain) -> tuple[list[int], list[bool]]:
    with np.errstate(over="ignore"):
        index, outside = positions(pa.array(labels), labels.astype(np.float64), domain)
    return index.tolist(), outside.tolist()


def expected(labels: np.ndarray, domain: Domain) -> list[int]:
    """The rule once more, in fractions: by what a label prints, by what rounds to it, by what lies just above it, or
    down."""
    kind, places = labels.dtype.type, {value: at for at, value in enumerate(exact(domain))}
    with np.errstate(over="ignore"):
        narrow = domain.values.astype(kind).tolist()
    rounding = {value: at for at, value in enumerate(narrow) if narrow.count(value) == 1}
    doubles, tolerance = domain.values.tolist(), FLOATS[kind]
    steps = [(b - a, max(abs(a), abs(b))) for a, b in itertools.pairwise(map(Fraction, doubles))]
    snapped = all(8 * Fraction(tolerance) * size <= step for step, size in steps)

    def place(label: np.floating[Any]) -> int:
        if (printed := Fraction(str(label))) in places:
            return places[printed]
        if (y := float(label)) in rounding:
            return rounding[y]
        return max(bisect_right(doubles, Fraction(y + abs(y) * tolerance if snapped else y)) - 1, 0)

    return [place(label) for label in labels]


@st.composite
def floats(draw: st.DrawFn, domain: Domain, kind: Any) -> np.ndarray:
    """Values of the domain as floats, their neighbours, sums that miss them, and anything else around."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    low, high = domain.ends
    width = high - low + 1
    at = domain.values[rng.integers(0, domain.k, 60)].astype(kind)
    some = np.concatenate([at, rng.uniform(low - width / 4, high + width / 4, 60).astype(kind)])
    for _ in range(draw(st.integers(0, 12))):
        some[:40] = np.nextafter(some[:40], kind(draw(st.sampled_from([-np.inf, np.inf]))))
    return some[np.isfinite(some)]


@pytest.mark.parametrize("kind", FLOATS)
@given(data=st.data())
@settings(deadline=None, max_examples=150)
def test_a_float_is_what_it_prints_as_or_just_misses_or_the_value_below(kind: Any, data: st.DataObject) -> None:
    domain = data.draw(domains())
    labels = data.draw(floats(domain, kind))
    index, _ = located(labels, domain)
    assert index == expected(labels, domain)


@pytest.mark.parametrize("kind", FLOATS)
@given(data=st.data())
@settings(deadline=None, max_examples=150)
def test_what_prints_as_a_value_is_never_outside_and_never_two_steps_away(kind: Any, data: st.DataObject) -> None:
    domain = data.draw(domains())
    labels = np.sort(data.draw(floats(domain, kind)))
    values = exact(domain)
    places = set(values)
    index, outside = located(labels, domain)
    assert index == sorted(index)  # in order
    for label, at, out in zip(labels, index, outside, strict=True):
        printed, y = Fraction(str(label)), Fraction(float(label))
        if printed in places:
            assert (values[at], out) == (printed, False)
        elif not out:
            low = max(bisect_right(values, y) - 1, 0)
            assert low <= at <= low + 1
            moved = Fraction(float(domain.values[at])) - y  # between floats: a value is no float itself
            assert at == low or moved <= 8 * Fraction(float(np.spacing(np.abs(label)))), "moved too far"


@given(domain=domains(), data=st.data(), scale=st.integers(0, 9), wide=st.booleans())
@settings(deadline=None, max_examples=200)
def test_a_decimal_is_compared_exactly(domain: Domain, data: st.DataObject, scale: int, wide: bool) -> None:
    values = exact(domain)
    around = st.integers(int(values[0] * 10**scale) - 500, int(values[-1] * 10**scale) + 500)
    units = data.draw(st.lists(around, min_size=1, max_size=40))
    labels = [Decimal(unit).scaleb(-scale) for unit in units]
    labels += [domain.value(at) for at in data.draw(st.lists(st.integers(0, domain.k - 1), max_size=20))]
    column = pa.array(labels, pa.decimal256(50, 20) if wide else pa.decimal128(38, 12))
    index, outside = positions(column, np.zeros(0), domain)
    exactly = [Fraction(label) for label in labels]
    assert index.tolist() == [max(bisect_right(values, y) - 1, 0) for y in exactly]
    assert outside.tolist() == [not values[0] <= y <= values[-1] for y in exactly]
    assert value_positions(column, np.zeros(0), domain).tolist() == [
        values.index(y) if y in values else -1 for y in exactly
    ]


DECIMALS = [pa.decimal32(7, 2), pa.decimal64(18, 4), pa.decimal128(38, 18), pa.decimal256(76, 40)]


@pytest.mark.parametrize("kind", DECIMALS)
def test_every_width_of_decimal_is_read(kind: pa.DataType) -> None:
    labels = [Decimal(text) for text in ("-0.01", "0", "1.14", "1.15", "1.16", "99.99")]
    domain = Domain.parse("0:1.15:0.05")
    for column in (pa.array(labels, kind), pa.array([Decimal(7), *labels], kind).slice(1)):
        index, outside = positions(column, np.zeros(0), domain)
        assert index.tolist() == [0, 0, 22, 23, 23, 23]
        assert outside.tolist() == [True, False, False, False, True, True]
    assert positions(pa.array([], kind), np.zeros(0), domain)[0].tolist() == []


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.decimal128(38, 0)])
def test_whole_numbers_beyond_floats_are_compared_exactly(kind: pa.DataType) -> None:
    domain = Domain.parse("9007199254740992:9007199254741092:4")
    labels = [9007199254740992 + i for i in (0, 3, 4, 7, 99, 100)]
    column = pa.array(labels, kind)
    index, outside = positions(column, np.array(labels, np.float64), domain)
    assert index.tolist() == [0, 0, 1, 1, 24, 25]
    assert not outside.any()


def test_a_domain_of_many_places_is_compared_exactly() -> None:
    """Beyond 64-bit whole numbers, in the domain and in the column."""
    domain = Domain.from_values(["0.1234567890123456789", "12.5", "987654321.000000000000000001"])
    labels = [Decimal(text) for text in ("0.1234567890123456788", "0.1234567890123456789", "12.5", "987654321", "1e9")]
    index, outside = positions(pa.array(labels, pa.decimal128(38, 20)), np.zeros(0), domain)
    assert index.tolist() == [0, 0, 1, 1, 2]
    assert outside.tolist() == [True, False, False, False, True]


def test_dictionaries_and_chunks_are_read_as_their_values() -> None:
    domain, prices = Domain.from_values(["0", "4.99", "9.99", "19.99"]), ["9.99", "4.99", "19.99", "9.99"]
    for kind in (pa.float16(), pa.float32(), pa.float64(), pa.decimal128(5, 2)):
        cells: list[Any] = [np.float16(p) if kind == pa.float16() else Decimal(p) for p in prices]
        plain = pa.array(cells if pa.types.is_decimal(kind) else [float(p) for p in cells], kind)
        coded = pa.DictionaryArray.from_arrays(pa.array([1, 0, 2, 1]), plain.take(pa.array([1, 0, 2])))
        for column in (plain, coded, pa.chunked_array([plain]), pa.chunked_array([coded])):
            numbers = np.array([float(str(cell)) for cell in cells])
            numbers = plain.cast(pa.float64()).to_numpy() if not pa.types.is_decimal(kind) else numbers
            index = [2, 1, 3, 2]
            assert positions(column, numbers, domain)[0].tolist() == index, kind
            assert value_positions(column, numbers, domain).tolist() == index, kind
    assert spelled(pa.array([np.float16(0.1), None, np.float16(5.1)])) == [0.1, None, 5.1]
    assert spelled(pa.array([4.99, None], pa.float32())) == [4.99, None]


def test_control_the_floor_of_floats_alone_takes_prices_a_step_down() -> None:
    domain = Domain.from_values(["0", "4.99", "9.99", "19.99"])
    prices = np.array([4.99, 9.99, 19.99], np.float32).astype(np.float64)
    assert domain.index(prices)[0].tolist() == [0, 1, 2]
    assert domain.index(prices, SINGLE)[0].tolist() == [1, 2, 3]
