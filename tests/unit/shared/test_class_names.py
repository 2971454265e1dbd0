"""A domain of names: one spelling in documents, codes in the given order, nothing that could be taken for a number."""

from __future__ import annotations

import pytest

from label_dp.class_names import MAX_NAME, MAX_NAMES
from label_dp.domain import Domain
from label_dp.errors import InvalidDomain

TOYS = ["books", "garden", "toys"]


@pytest.mark.parametrize("given", ["books,garden,toys", TOYS, {"names": TOYS}])
def test_each_door_leads_to_the_same_domain(given: object) -> None:
    domain = Domain.from_json(given)
    assert domain.names == ("books", "garden", "toys")
    assert domain.as_json() == {"names": TOYS}
    assert (domain.k, domain.values.tolist(), domain.nominal) == (3, [0.0, 1.0, 2.0], True)
    assert [domain.text(place) for place in range(3)] == TOYS
    domain.check_spelling({"names": TOYS})


def test_the_order_fixes_the_codes_and_is_a_part_of_the_domain() -> None:
    other = Domain.from_json(TOYS[::-1])
    assert other != Domain.from_json(TOYS)
    with pytest.raises(InvalidDomain):
        other.check_spelling({"names": TOYS})


def test_two_names_have_an_order_and_numbers_have_no_names() -> None:
    assert not Domain.from_names(["no", "yes"]).nominal
    assert Domain.parse("binary").names == Domain.from_json([1, 2]).names == ()
    assert Domain.parse("binary") != Domain.from_names(["no", "yes"])


@pytest.mark.parametrize(
    "name",
    [
        "",
        " toys",
        "toys ",
        "to\nys",
        "to\x00ys",
        "to\u202eys",
        "\ud800",
        "x" * (MAX_NAME + 1),
        *("1", "1.5", "1e3", "-0", "nan", "inf", "Infinity", "1_0", "\u0661", "+1", ".5", "007"),
    ],
)
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidDomain, match="Name 2 of the domain"):
        Domain.from_json(["books", "garden", name])


@pytest.mark.parametrize(
    "given",
    [
        ["toys"],
        ["toys", "toys"],
        ["toys", 1],
        ["toys", True],
        [f"name {i}" for i in range(MAX_NAMES + 1)],
        {"names": "books,toys"},
        {"names": ["1", "2"]},
        {"values": TOYS},
        "books,,toys",
        "0:1,5",
        "a:b,c",
        "1,2,3",
    ],
)
def test_lists_that_are_no_domain_are_refused(given: object) -> None:
    with pytest.raises(InvalidDomain):
        Domain.from_json(given)


def test_the_most_names_of_the_most_letters_are_taken() -> None:
    names = [f"{i:03d}".rjust(MAX_NAME, "x") for i in range(MAX_NAMES)]
    assert Domain.from_names(names).k == MAX_NAMES


def test_names_have_no_part_but_the_whole() -> None:
    domain = Domain.from_names(TOYS)
    assert domain.place(domain.part(0, 2)) == (0, 2)
    with pytest.raises(InvalidDomain):
        domain.part(0, 1)
    with pytest.raises(InvalidDomain):
        domain.place(Domain.parse("0:2"))
    with pytest.raises(InvalidDomain):
        Domain.parse("0:2").place(domain)


def test_a_line_of_text_shows_the_first_names() -> None:
    assert str(Domain.from_names(["no", "yes"])) == "no, yes"
    assert str(Domain.from_names([f"n{i}" for i in range(8)])) == "n0, n1, n2, n3, n4 and 3 more"
