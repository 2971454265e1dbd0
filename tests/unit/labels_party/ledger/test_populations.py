"""What a population may be declared as."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from label_dp.domain import Domain
from label_dp.errors import InvalidInput
from tests.support.asking import population

NUMBERS, NAMES = Domain.parse("0:10"), Domain.parse("books,garden,toys")


@pytest.mark.parametrize(("length", "taken"), [(1, True), (200, True), (201, False)])
def test_names_have_one_to_200_characters(length: int, taken: bool) -> None:
    def declared() -> str:
        return population("n" * length, "sale", NUMBERS, "4").name

    if taken:
        assert declared() == "n" * length
        return
    with pytest.raises((InvalidInput, ValidationError), match="200"):
        declared()


def test_numbers_outside_are_clipped_and_names_have_no_nearest_one() -> None:
    assert population("p", "sale", NUMBERS, "4").out_of_domain == "clip"
    assert population("p", "sale", NUMBERS, "4", out_of_domain="clip").out_of_domain == "clip"
    assert population("p", "shelf", NAMES, "4").out_of_domain == "refuse"
    assert population("p", "shelf", NAMES, "4", out_of_domain="refuse").out_of_domain == "refuse"
    with pytest.raises(InvalidInput, match="no class is nearest"):
        population("p", "shelf", NAMES, "4", out_of_domain="clip")


def test_ids_are_of_96_bits_and_differ() -> None:
    ids = {population("p", "sale", NUMBERS, "4").id for _ in range(100)}
    assert len(ids) == 100
    assert {len(one) for one in ids} == {len("pop_") + 24}


def test_without_a_lifetime_delta_only_pure_epsilon_is_charged() -> None:
    assert population("p", "sale", NUMBERS, "4").lifetime_delta == 0


def test_what_rules_exclude_for_ever_is_said_of_those_rules_alone() -> None:
    erasure, person, delta = population("p", "sale", NUMBERS, "4").ruled_out()
    assert "ever be erased" in erasure
    assert "one person" in person
    assert "lifetime δ is 0" in delta
    assert population("p", "sale", NUMBERS, "4", missing_label=0).ruled_out() == [person, delta]
    unit = {"unit_column": "user", "max_examples_per_unit": 2}
    assert population("p", "sale", NUMBERS, "4", **unit).ruled_out() == [erasure, delta]
    assert population("p", "sale", NUMBERS, "4", lifetime_delta="1e-6").ruled_out() == [erasure, person]
