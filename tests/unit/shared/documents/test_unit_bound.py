"""ε per unit is N times the most that any example has spent, exact, and a manifest cannot state less."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from label_dp.documents.canonical import canonical_bytes
from label_dp.documents.manifest import Manifest
from label_dp.errors import MalformedManifest
from label_dp.privacy import PER_EXAMPLE, Epsilon, PrivacyUnit
from tests.unit.shared.documents.test_manifest import document

SPENT = Epsilon.parse("1.5")


@given(st.integers(1, 1_000_000), st.integers(0, 10**15))
def test_the_bound_is_exact_also_beyond_the_largest_epsilon(most: int, nano: int) -> None:
    bound = PrivacyUnit("person", most).bound(Epsilon(nano))
    assert bound is not None
    assert Fraction(bound) == most * Fraction(nano, 10**9)


def test_without_a_unit_there_is_no_figure() -> None:
    assert PER_EXAMPLE.bound(SPENT) is None
    assert PrivacyUnit("person", 3).bound(SPENT) == "4.5"


def manifest_with(per_unit: str | None, most: int | None = 4) -> Manifest:
    unit = {"kind": "unit", "column": "person", "max_examples": most, "epsilon_per_unit": per_unit}
    return Manifest.from_payload(canonical_bytes(document() | {"unit": unit | {"examples_beyond": 0}}))


def test_a_manifest_that_states_less_than_its_examples_spent_is_refused() -> None:
    spent = Epsilon.parse(document()["epsilon_spent"])
    exact = PrivacyUnit("person", 4).bound(spent)
    assert manifest_with(exact).unit.epsilon_per_unit == exact
    assert Manifest.from_payload(canonical_bytes(document())).unit.epsilon_per_unit is None
    less = PrivacyUnit("person", 4).bound(Epsilon(spent.nano - 1))
    more = PrivacyUnit("person", 4).bound(Epsilon.parse(document()["epsilon_lifetime"]) + Epsilon(1))
    for wrong, most in (
        (less, 4),
        (more, 4),
        (exact, 3),
        (exact, None),
        (None, 4),
        (None, None),
        ("-1", 4),
        ("1e9", 4),
    ):
        with pytest.raises(MalformedManifest):
            manifest_with(wrong, most)
