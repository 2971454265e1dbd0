"""The one grammar of numbers: what it takes, exactly, and what it refuses at every reader that stands on it."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from label_dp.companions.maps.scores import ScoreGrid
from label_dp.domain import Domain
from label_dp.errors import InvalidInput, InvalidRows, LabelDPError
from label_dp.numbers import BadSpelling, decimal_of, rounded_up, whole_of
from label_dp.privacy import Epsilon, parse_delta
from labels_party.companions.kinds.feature_schema import Schema
from labels_party.companions.kinds.linear_model import LinearModelKind
from labels_party.labels.parsing import EMPTY as EMPTY_LABEL
from labels_party.labels.parsing import floats_of
from labels_party.mechanisms.quantiles import parse_quantile
from tests.support.asked import feature_wish
from tests.support.number_doors import BAD_TEXTS

FEATURE = {"name": "x", "range": ["0", "1"]}
READERS: dict[str, Callable[[Any], Any]] = {
    "ε": Epsilon.parse,
    "δ": parse_delta,
    "quantile": parse_quantile,
    "lower end of a domain": lambda t: Domain.parse(f"{t}:10"),
    "upper end of a domain": lambda t: Domain.parse(f"0:{t}"),
    "step of a domain": lambda t: Domain.parse(f"0:10:{t}"),
    "value of a domain": lambda t: Domain.from_values([t]),
    "lower end of scores": lambda t: ScoreGrid.parse(f"{t}:10:5"),
    "steps of scores": lambda t: ScoreGrid.parse(f"0:1:{t}"),
    "end of a feature": lambda t: Schema.from_json([FEATURE | {"range": ["-9", t]}], 255),
    "learning rate": lambda t: feature_wish(LinearModelKind, epsilon="1", features=[FEATURE], rate=t).asked.rate,
}
SIGNED = ("domain", "scores", "feature", "rate")
SMALL = ("1e-400",)  # a number, though none that most doors take


@pytest.mark.parametrize("text", BAD_TEXTS, ids=range(len(BAD_TEXTS)))
def test_what_is_spelled_as_no_number_is_none(text: str) -> None:
    if text not in ("-0", *SMALL):
        with pytest.raises(BadSpelling):
            decimal_of(text)
    with pytest.raises(BadSpelling):
        whole_of(text)


@pytest.mark.parametrize("name", READERS)
def test_every_reader_refuses_it_in_a_sentence(name: str) -> None:
    for text in BAD_TEXTS:
        if text == "-0" and any(word in name for word in SIGNED) and "steps" not in name:
            continue
        if text in SMALL and name in ("end of a feature", "lower end of scores", "learning rate"):
            continue
        with pytest.raises(InvalidInput) as refusal:
            READERS[name](text)
        assert refusal.value.detail.endswith("."), (text, refusal.value.detail)
        assert len(text) < 3 or text not in refusal.value.detail.replace("'float32'", "") or not text.isascii()


@pytest.mark.parametrize("value", [True, False, None, [1], {"1": 1}, b"1", 1j, float("nan"), float("inf")])
def test_other_kinds_of_values_are_no_numbers(value: Any) -> None:
    for read in (decimal_of, whole_of):
        with pytest.raises(BadSpelling):
            read(value)
    with pytest.raises(LabelDPError):
        Epsilon.parse(value)


@pytest.mark.parametrize(
    "value", [Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity"), Decimal("1e5000"), 10**5000], ids=range(5)
)
def test_nor_are_numbers_without_bounds(value: Any) -> None:
    with pytest.raises(BadSpelling):
        decimal_of(value)


@pytest.mark.parametrize(
    ("given", "exact"),
    [
        ("0", "0"),
        ("10", "10"),
        ("0.5", "0.5"),
        ("1.30", "1.30"),
        ("-2.5", "-2.5"),
        ("1e-6", "0.000001"),
        ("5E+1", "50"),
        (3, "3"),
        (0.1, "0.1"),
        (1e-7, "1e-7"),
        (np.float64(0.1), "0.1"),
        (Decimal("0.25"), "0.25"),
    ],
)
def test_numbers_are_exact(given: Any, exact: str) -> None:
    assert decimal_of(given) == Decimal(exact)


def test_whole_numbers() -> None:
    assert [whole_of(t) for t in ("0", "7", "-3", "999999999999999999", 12)] == [0, 7, -3, 10**18 - 1, 12]
    for text in ("1.0", "1e1", "9" * 19):
        with pytest.raises(BadSpelling):
            whole_of(text)


# --- labels: other programs write them, so a sign, leading zeros and a bare point pass; other digits do not ----

LABELS = {"1": 1.0, "+1": 1.0, "-0": 0.0, "007": 7.0, ".5": 0.5, "5.": 5.0, " 1": 1.0, "1 ": 1.0, "1e2": 100.0}
NO_LABELS = ("1_0", "\uff11", "\u0661", "1\u00a0", "\u30001", "\u22121", "0x1", "1,0", "1e", "--1", "1/2", "one", "")


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_labels_of_wrong_spelling_are_refused_by_row_and_rule(kind: pa.DataType) -> None:
    plain = kind if not pa.types.is_dictionary(kind) else pa.string()
    good = pa.array(list(LABELS), plain).cast(kind)
    assert floats_of(good).tolist() == list(LABELS.values())
    for text in NO_LABELS:
        for others in (["1", "2"], ["+1", "2"]):  # whichever way the column is read
            column = pa.array([*others, text], plain).cast(kind)
            with pytest.raises(InvalidRows) as refusal:
                floats_of(column)
            rule = "must be a number" if text else EMPTY_LABEL
            assert [(p.row, p.rule) for p in refusal.value.problems] == [(2, rule)]
            assert not text.strip() or text not in str(refusal.value.detail)
    for text in ("nan", "inf", "1e999"):
        with pytest.raises(InvalidRows, match="finite"):
            floats_of(pa.array(["1", text], plain).cast(kind))


@given(value=st.just(0.0) | st.floats(1e-300, 1e300), digits=st.integers(1, 15))
def test_what_a_text_shows_of_an_upper_bound_is_not_below_it(value: float, digits: int) -> None:
    shown = rounded_up(value, digits)
    assert Decimal(f"{shown:.{digits}g}") >= decimal_of(value)
    assert shown <= value * (1 + 10.0 ** (1 - digits))
    assert f"{rounded_up(shown, digits)}" == f"{shown}"
