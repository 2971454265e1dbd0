"""The public label domain: exact decimals, rounding down exactly, hostile descriptions refused at once."""

from __future__ import annotations

import time
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from label_dp.domain import MANIFEST_VALUES, MAX_DOMAIN, Domain
from label_dp.errors import InvalidDomain


@pytest.mark.parametrize(
    ("text", "k", "first", "last"),
    [
        ("0:400", 401, 0.0, 400.0),
        ("0:1:0.1", 11, 0.0, 1.0),
        ("-5:5", 11, -5.0, 5.0),
        ("0:60:0.5", 121, 0.0, 60.0),
        ("0.05:0.35:0.15", 3, 0.05, 0.35),
        ("7:7", 1, 7.0, 7.0),
        ("1e2:3e2:1e2", 3, 100.0, 300.0),
        ("-0:1", 2, 0.0, 1.0),
    ],
)
def test_ranges_include_both_ends(text: str, k: int, first: float, last: float) -> None:
    domain = Domain.parse(text)
    assert domain.k == k == len(domain.values)
    assert (domain.values[0], domain.values[-1]) == (first, last)
    assert not domain.values.flags.writeable


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "0",
        "0:1:2:3",
        "a:b",
        "0:nan",
        "nan:1",
        "0:inf",
        "-inf:0",
        " 0 : 10 : 2 ",
        "0:1_0",
        "0:1\u0660",
        "+0:1",
        "0:1:0",
        "0:1:-1",
        "1:0",
        "0:1:0.3",
        "0::1",
        "0:10:3",
        "0:1:nan",
        "0x0:0x10",
        "0:1;1",
        "1e400:1e401",
        "0:1e-400",
        "0.0000000000000000000000000000000001:1:0.5",
        "0:1.00000000000000000000000000000000001:0.5",
    ],
)
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(InvalidDomain) as refusal:
        Domain.parse(text)
    assert refusal.value.code == "invalid-domain"
    assert refusal.value.detail.endswith(".")


@pytest.mark.parametrize(
    "text",
    [
        "0:1e15",
        "0:1:1e-300",
        "0:1e300",
        f"0:{MAX_DOMAIN}",
        "-1e300:1e300:1e-300",
        "0e999999999:1",
        "0:1e-999999999",
        "0:1e999999999",
        "0:0." + "1" * 100000,
        "0:1:0." + "0" * 200000 + "1",
    ],
)
def test_huge_domains_are_refused_at_once_and_without_allocation(text: str) -> None:
    start = time.process_time()
    with pytest.raises(InvalidDomain):
        Domain.parse(text)
    assert time.process_time() - start < 0.5


def test_the_largest_domain_is_exactly_the_limit() -> None:
    assert Domain.parse(f"0:{MAX_DOMAIN - 1}").k == MAX_DOMAIN


def test_decimals_are_correctly_rounded_doubles() -> None:
    values = Domain.parse("0:1:0.1").values
    assert values.tolist() == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    assert Domain.parse("0.1:0.5:0.1").integers() == [1, 2, 3, 4, 5]
    assert Domain.parse("0.1:0.5:0.1").lattice == (10, (1, 1))


def test_the_lattice_is_exact_beyond_twenty_eight_digits() -> None:
    low = "0.1234567890123456789012345678901234567"
    domain = Domain.parse(f"{low}:1{low[1:]}:0.5")
    scale, ints = domain.lattice
    assert domain.k == 3
    assert isinstance(ints, tuple)
    assert Fraction(ints[0], scale) == Fraction(low)
    assert Fraction(domain.integers()[-1], scale) == Fraction("1" + low[1:])


@pytest.mark.parametrize(
    ("label", "position"),
    [
        (0.3, 3),  # the double nearest 0.3 is the value 0.3
        (0.1 + 0.2, 3),
        (0.29999999999999993, 2),  # the double just below it is not
        (np.nextafter(0.3, 1), 3),
        (0.7, 7),
        (0.1 * 3, 3),
        (0.7 - 0.4, 2),  # 0.3 less some units in the last place: rounds down
        (1.0, 10),
        (0.999, 9),
        (0.0, 0),
        (-0.0, 0),
        (5e-324, 0),
    ],
)
def test_labels_are_rounded_down_exactly(label: float, position: int) -> None:
    index, outside = Domain.parse("0:1:0.1").index(np.array([label]))
    assert index.tolist() == [position]
    assert not outside[0]


@given(st.integers(-1000, 1000), st.integers(1, 50), st.integers(0, 4), st.data())
def test_rounding_down_agrees_with_fractions(first: int, step: int, places: int, data: st.DataObject) -> None:
    unit = Fraction(1, 10**places)
    low, width = first * unit, step * unit
    domain = Domain(*(Decimal(n).scaleb(-places) for n in (first, first + 20 * step, step)))
    label = data.draw(st.floats(float(low), float(low + 20 * width)))
    (index,), (outside,) = domain.index(np.array([label]))
    # the values are doubles: a label that is such a double belongs to it
    exact = [Fraction(v) for v in domain.values.tolist()]
    assert index == max((i for i, v in enumerate(exact) if v <= Fraction(label)), default=0)
    assert outside == (Fraction(label) < exact[0] or Fraction(label) > exact[-1])


@pytest.mark.parametrize("text", ["0:400", "0:100:0.25", "0:1000000:8", "0:3:3", "-4:4", "0:1:0.1"])
def test_positions_are_those_of_a_search(text: str) -> None:
    domain = Domain.parse(text)
    near = [domain.values, np.nextafter(domain.values, np.inf), np.nextafter(domain.values, -np.inf)]
    labels = np.concatenate([*near, np.random.default_rng(0).uniform(*domain.values[[0, -1]], 1000)])
    index, _ = domain.index(labels)
    expected = np.searchsorted(domain.values, labels, side="right") - 1
    np.testing.assert_array_equal(index, np.clip(expected, 0, domain.k - 1))


def test_outside_is_clipped_and_told() -> None:
    labels = np.array([-1.0, 0.0, 10.0, 10.5, np.inf, -np.inf, 1e308, np.nextafter(10.0, 11)])
    index, outside = Domain.parse("0:10").index(labels)
    assert index.tolist() == [0, 0, 10, 10, 10, 0, 10, 10]
    assert outside.tolist() == [True, False, False, True, True, True, True, True]


def test_not_a_number_counts_as_outside() -> None:
    _, outside = Domain.parse("0:10").index(np.array([np.nan]))
    assert outside.tolist() == [True]


def test_one_value_is_a_domain() -> None:
    for domain in (Domain.parse("3:3"), Domain.parse("3:3:100"), Domain.from_values([3])):
        assert domain.k == 1
        index, outside = domain.index(np.array([2.0, 3.0, 4.0]))
        assert index.tolist() == [0, 0, 0]
        assert outside.tolist() == [True, False, True]


def test_listed_values() -> None:
    domain = Domain.from_values([0, "0.5", 0.7, Decimal("10")])
    assert domain.values.tolist() == [0.0, 0.5, 0.7, 10.0]
    assert domain.index(np.array([0.69, 0.7, 9.0]))[0].tolist() == [1, 2, 2]
    assert str(domain) == "4 listed values"
    assert domain.integers() == [0, 5, 7, 100]


@pytest.mark.parametrize(
    "values", [[], [1, 1], [2, 1], ["a"], [float("nan")], [float("inf")], list(range(MANIFEST_VALUES + 1)), [None]]
)
def test_what_is_no_list_of_values_is_refused(values: list[object]) -> None:
    with pytest.raises(InvalidDomain):
        Domain.from_values(values)  # type: ignore[arg-type]  # hostile on purpose


def test_values_that_collide_as_doubles_are_refused() -> None:
    with pytest.raises(InvalidDomain, match="distinguishable"):
        _ = Domain.from_values(["1", "1.00000000000000000001"]).values
    with pytest.raises(InvalidDomain, match="distinguishable"):
        _ = Domain.parse("9007199254740992:9007199254740996").values


def test_binary_is_a_word_for_two_values_that_documents_spell_as_any_range() -> None:
    domain = Domain.parse("binary")
    assert domain == Domain.parse("0:1") == Domain.from_json("binary")
    assert (domain.values.tolist(), domain.as_json()) == ([0.0, 1.0], {"range": "0:1:1"})
    with pytest.raises(InvalidDomain, match="one spelling"):
        domain.check_spelling({"range": "binary"})
    domain.check_spelling({"range": "0:1:1"})
    for other in ("Binary", " binary", "binary:1", "bin"):
        with pytest.raises(InvalidDomain, match=r"'binary' is 0 and 1|must be"):
            Domain.parse(other)


@pytest.mark.parametrize("text", ["0:10", "0:1:0.1", "-3:3:0.25"])
def test_a_range_survives_json(text: str) -> None:
    domain = Domain.parse(text)
    assert Domain.from_json(domain.as_json()) == domain
    assert Domain.from_json(text) == domain


def test_listed_values_survive_json() -> None:
    domain = Domain.from_values([1, 2.5, "1e3"])
    assert domain.as_json() == {"values": ["1", "2.5", "1000"]}
    assert Domain.from_json(domain.as_json()).values.tolist() == [1.0, 2.5, 1000.0]


@pytest.mark.parametrize(
    "data", [None, 5, {}, {"range": 5}, {"values": "0:1"}, [True, False], [[1], [2]], {"values": {}}]
)
def test_json_of_another_shape_is_refused(data: object) -> None:
    with pytest.raises(InvalidDomain):
        Domain.from_json(data)
