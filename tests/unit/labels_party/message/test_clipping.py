"""Bought clipping bounds: what is asked for, what is bought, what then lives on the smaller domain, what is stated."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from label_dp.documents.canonical import canonical_bytes
from label_dp.documents.manifest import Manifest
from label_dp.domain import Domain
from label_dp.errors import InvalidDomain, InvalidEpsilon, InvalidInput, MalformedManifest
from label_dp.losses import MatrixLoss
from label_dp.privacy import ZERO, Epsilon
from labels_party.mechanisms.prior import prior_epsilon
from labels_party.message.clipping import (
    ClippedLabels,
    buy,
    candidates,
    clip_cells,
    clip_loss,
    clip_prior,
    expected_ends,
    parse_clipping,
    rank_error,
)
from tests.support.fuzz_targets import CORPUS
from tests.unit.shared.documents.test_manifest import document, drop, put, rr

E = Epsilon.parse


@pytest.mark.parametrize(
    ("asked", "spelled"),
    [
        ("0.95", ("0.95",)),
        (0.5, ("0.5",)),
        ("0.950", ("0.95",)),
        ("0.05:9.5e-1", ("0.05", "0.95")),
        (["0.1", 0.9], ("0.1", "0.9")),
        (["0.000000001"], ("0.000000001",)),
    ],
)
def test_quantiles_have_one_spelling(asked: Any, spelled: tuple[str, ...]) -> None:
    assert parse_clipping(asked, "0.2") == (spelled, E("0.2"))


def test_nothing_asked_is_nothing_bought() -> None:
    assert parse_clipping(None, None) == ((), ZERO)


@pytest.mark.parametrize(
    ("quantile", "epsilon", "words"),
    [
        ("0.95", None, "both"),
        (None, "0.1", "both"),
        ("0", "0.1", "strictly between"),
        ("1", "0.1", "strictly between"),
        ("0:0.9", "0.1", "strictly between"),
        ("0.9:0.1", "0.1", "lower first"),
        ("0.5:0.5", "0.1", "lower first"),
        ("0.1:0.5:0.9", "0.1", "one, of the upper bound, or two"),
        ([], "0.1", "one, of the upper bound, or two"),
        ("half", "0.1", "decimal number"),
        ("", "0.1", "decimal number"),
        ([None], "0.1", "decimal number"),
        ("0.95", "0", "greater than zero"),
        ("0.95", "-1", "negative"),
        ("0.95", "lots", "decimal number"),
    ],
)
def test_bad_wishes_are_refused(quantile: Any, epsilon: Any, words: str) -> None:
    with pytest.raises((InvalidInput, InvalidEpsilon), match=words):
        parse_clipping(quantile, epsilon)


def test_bounds_of_much_epsilon_are_the_quantiles() -> None:
    counts, domain = np.array([10, 0, 0, 60, 20, 0, 8, 2]), Domain.parse("0:7")
    assert buy(counts, domain, ["0.95"], E("10000")) == (0, 6)
    assert buy(counts, domain, ["0.05", "0.5"], E("10000")) == (0, 3)
    assert buy(counts, domain, ["0.2", "0.95"], E("10000")) == (3, 6)


@pytest.mark.parametrize(("text", "zero"), [("0:100000", 0), ("-50000:50000", 50000), ("9:100000", 0), ("-9:-3", 6)])
def test_candidates_are_dense_near_zero_and_elsewhere_1_32_apart(text: str, zero: int) -> None:
    grid = candidates(Domain.parse(text))
    k = Domain.parse(text).k
    assert (grid[0], grid[-1], zero in grid.tolist()) == (0, k - 1, True)
    assert grid.size < 700
    steps, near = np.diff(grid), np.minimum(np.abs(grid[1:] - zero), np.abs(grid[:-1] - zero))
    assert np.all((steps >= 1) & (steps <= np.maximum(1, near / 32)))


def test_a_bound_in_a_range_that_is_far_too_wide_stays_with_the_labels() -> None:
    """10,000 labels of about 100 in a range of a million. What holds 19 times in 20 holds for 40 bounds of 60 at least,
    but for a probability of 10⁻¹⁰."""
    labels = np.random.default_rng(3).lognormal(4.6, 0.5, 10_000).astype(np.int64)
    counts, domain = np.bincount(labels, minlength=1_000_001), Domain.parse("0:1000000")
    missed = rank_error(["0.9"], E("0.05"), 10_000, domain)
    assert missed < 450
    upto = np.cumsum(counts)
    found = [buy(counts, domain, ["0.9"], E("0.05"))[1] for _ in range(60)]
    assert sum(abs(int(upto[last]) - 9000) <= missed + 100 for last in found) >= 40


@pytest.mark.parametrize(
    ("counts", "quantiles", "ends"),
    [
        ([5, 0, 0], ["0.5"], (0, 1)),
        ([0, 0, 5], ["0.4", "0.6"], (1, 2)),
        ([0, 5, 0], ["0.4", "0.6"], (1, 2)),
        ([1, 0], ["0.5"], (0, 1)),
    ],
)
def test_two_values_are_always_left(counts: list[int], quantiles: list[str], ends: tuple[int, int]) -> None:
    domain = Domain.parse(f"0:{len(counts) - 1}")
    assert buy(np.array(counts), domain, quantiles, E("100000")) == ends


@given(
    st.lists(st.integers(0, 20), min_size=2, max_size=30).filter(any),
    st.sampled_from([["0.5"], ["0.05", "0.95"], ["0.999"]]),
)
def test_bounds_are_two_positions_of_the_domain(counts: list[int], quantiles: list[str]) -> None:
    first, last = buy(np.array(counts), Domain.parse(f"0:{len(counts) - 1}"), quantiles, E("0.3"))
    assert 0 <= first < last < len(counts)
    assert first == 0 or len(quantiles) == 2


@given(st.lists(st.integers(0, 19), min_size=1, max_size=50), st.integers(0, 18), st.integers(1, 19))
def test_labels_prior_and_cells_live_on_the_part(index: list[int], low: int, width: int) -> None:
    ends, domain = (low, min(low + width, 19)), Domain.parse("0:19")
    k = ends[1] - ends[0] + 1

    class Stored:
        def chunks(self) -> Any:
            yield "ids", np.array(index)

        def positions(self) -> Any:
            yield np.array(index)

    ((ids, clipped),) = ClippedLabels(Stored(), ends).chunks()
    assert ids == "ids"
    assert [part.tolist() for part in ClippedLabels(Stored(), ends).positions()] == [clipped.tolist()]
    values = np.arange(20.0)
    assert values[ends[0] + clipped].tolist() == np.clip(values[index], float(ends[0]), float(ends[1])).tolist()
    prior = np.bincount(index, minlength=20) / len(index)
    assert np.bincount(clipped, minlength=k) / len(index) == pytest.approx(clip_prior(prior, ends))
    planned = prior_epsilon("auto", k=20, n=5000, epsilon=E("1")).cells
    cells = clip_cells(planned, domain.part(*ends))
    assert cells is not None
    assert (cells[0], cells[-1]) == (0, k)
    assert np.all(np.diff(cells) >= 1)
    assert clip_cells(None, domain.part(*ends)) is None


def test_a_matrix_of_losses_keeps_the_rows_between_the_bounds() -> None:
    loss = MatrixLoss(np.arange(4.0), np.array([0.0, 3.0]), np.arange(8.0).reshape(4, 2))
    part = clip_loss(loss, (1, 2))
    assert isinstance(part, MatrixLoss)
    part.check(np.array([1.0, 2.0]))
    assert part.values.tolist() == [[2.0, 3.0], [4.0, 5.0]]
    assert clip_loss("squared", (1, 2)) == "squared"


def test_expected_bounds_follow_the_prior() -> None:
    assert expected_ends(np.full(100, 0.01), ["0.945"]) == (0, 94)
    assert expected_ends(np.full(100, 0.01), ["0.055", "0.945"]) == (5, 94)
    assert expected_ends(np.array([1.0, 0.0, 0.0]), ["0.5"]) == (0, 1)


@pytest.mark.parametrize("text", ["0:60:0.5", "-3:9:3", "1e3:5e3:1e3", "0:400"])
def test_a_part_of_a_domain_is_a_domain_in_its_one_spelling(text: str) -> None:
    domain = Domain.parse(text)
    part = domain.part(1, 3)
    assert Domain.from_json(part.as_json()).as_json() == part.as_json()
    assert part.values.tolist() == domain.values[1:4].tolist()
    assert domain.place(part) == (1, 3)
    for other in (Domain.parse("0.25:1.25"), Domain.from_values([0, 1]), Domain.parse("-100:100")):
        with pytest.raises(InvalidDomain):
            domain.place(other)
    for ends in ((-1, 2), (2, 1), (0, domain.k)):
        with pytest.raises(InvalidDomain):
            domain.part(*ends)


def test_a_part_of_listed_values_is_listed() -> None:
    domain = Domain.from_values([0, 2.5, 7, 10])
    assert domain.part(1, 2).as_json() == {"values": ["2.5", "7"]}
    assert domain.place(domain.part(1, 2)) == (1, 2)
    for other in (Domain.from_values([2.5, 10]), Domain.from_values([7, 10, 11]), Domain.parse("0:10")):
        with pytest.raises(InvalidDomain):
            domain.place(other)


# --- the manifest --------------------------------------------------------------------------------------------


def bought() -> dict[str, Any]:
    """The manifest of the rules of `test_manifest`, its domain 0:3 bought inside 0:9."""
    data = document()
    data["domain_source"] = "bought with ε_clip"
    data["epsilon"] |= {"clip": "0.2", "total": "1.3"}
    data["epsilon_spent"] = "1.3"
    data["clipping"] = {
        "quantiles": ["0.95"],
        "bounds": ["3"],
        "epsilon": "0.2",
        "public_domain": {"range": "0:9:1"},
        "mechanism": "exponential mechanism on ranks",
    }
    return data


def read(data: Any) -> Manifest:
    return Manifest.from_payload(canonical_bytes(data))


def test_bought_bounds_read_and_spell_the_same_again() -> None:
    manifest = read(bought())
    assert manifest.payload() == canonical_bytes(bought())
    assert (str(manifest.domain), str(manifest.public_domain)) == ("0:3:1", "0:9:1")
    both = bought()
    both["clipping"] |= {"quantiles": ["0.05", "0.95"], "bounds": ["0", "3"], "public_domain": {"range": "-2:3:1"}}
    assert read(both).clipping is not None
    assert str(read(document()).public_domain) == "0:3:1"


def test_the_stored_manifest_with_bounds_reads_and_is_spelled_so_for_ever() -> None:
    stored = (CORPUS / "manifest" / "clipping.json").read_bytes()
    manifest = Manifest.from_payload(stored)
    assert manifest.payload() == stored
    assert b'"clipping":{"bounds":["3"],"epsilon":"0.2","mechanism":"exponential mechanism on ranks"' in stored
    assert manifest.clipping is not None
    assert (manifest.clipping.quantiles, manifest.clipping.bounds) == (["0.95"], ["3"])


BROKEN: dict[str, Callable[[dict[str, Any]], object]] = {
    "bounds but no source": put("domain_source", value="declared public by the owner"),
    "no word on bounds": drop("clipping"),
    "a source but no bounds": put("clipping", value=None),
    "ε that bought nothing": lambda d: d.update(clipping=None, domain_source="declared public by the owner"),
    "a member more": put("clipping", "confidence", value="0.9"),
    "another ε": put("clipping", "epsilon", value="0.1"),
    "another bound": put("clipping", "bounds", value=["4"]),
    "a bound spelled otherwise": put("clipping", "bounds", value=["3.0"]),
    "a bound too many": put("clipping", "bounds", value=["0", "3"]),
    "no bounds": put("clipping", "bounds", value=[]),
    "quantiles that fall": lambda d: d["clipping"].update(quantiles=["0.9", "0.1"], bounds=["0", "3"]),
    "a quantile of 1": put("clipping", "quantiles", value=["1"]),
    "a quantile spelled otherwise": put("clipping", "quantiles", value=["0.950"]),
    "a public domain that is smaller": put("clipping", "public_domain", value={"range": "0:2:1"}),
    "a public domain of another step": put("clipping", "public_domain", value={"range": "0:9:3"}),
    "a lower end that nobody bought": put("clipping", "public_domain", value={"range": "-1:9:1"}),
    "a public domain spelled otherwise": put("clipping", "public_domain", value={"range": "0:9"}),
    "a public domain of listed values": put("clipping", "public_domain", value={"values": ["0", "1", "2", "3"]}),
    "another mechanism": put("clipping", "mechanism", value="read off"),
    "a surprise": put("clipping", "surprise", value=1),
    "a domain of one value": lambda d: d.update(domain={"range": "3:3:1"}, channel=rr("1", Domain.parse("2:3"))),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_manifest_that_says_something_else_of_its_bounds_is_refused(name: str) -> None:
    data = copy.deepcopy(bought())
    BROKEN[name](data)
    with pytest.raises(MalformedManifest):
        read(data)
