"""Columns of names as codes, whatever Arrow type holds the text."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from label_dp.domain import Domain
from label_dp.errors import InvalidRows, InvalidTable
from labels_party.labels.parsing import CLASS, EMPTY, NUMBER, absent, classes_of, floats_of

DOMAIN = Domain.from_names(["toys", "books", "?"])
KINDS = [pa.string(), pa.large_string(), pa.string_view()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dictionary", [False, True])
def test_every_kind_of_text_is_read(kind: pa.DataType, dictionary: bool) -> None:
    column = pa.array(["books", "?", "toys"]).cast(kind)
    if dictionary:
        column = pa.DictionaryArray.from_arrays(pa.array([2, 0, 1], pa.int8()), pa.array(DOMAIN.names).cast(kind))
        assert classes_of(column, DOMAIN).tolist() == [2, 0, 1]
    else:
        assert classes_of(column, DOMAIN).tolist() == [1, 2, 0]
    assert classes_of(pa.chunked_array([column, column]), DOMAIN).size == 6


@pytest.mark.parametrize("kind", KINDS)
def test_a_dictionary_of_numbers_in_any_kind_of_text_is_read(kind: pa.DataType) -> None:
    values = pa.array(["1.5", "2"]).cast(kind)
    column = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1], pa.int8()), values)
    assert floats_of(column).tolist() == [2.0, 1.5, 2.0]


def test_rows_of_no_class_are_named_and_counted() -> None:
    column = pa.array(["toys", "Toys", None, "", "books", "x" * 10_000])
    with pytest.raises(InvalidRows) as found:
        classes_of(column, DOMAIN)
    rules = {1: CLASS, 2: EMPTY, 3: EMPTY, 5: CLASS}
    assert {p.row: p.rule for p in found.value.problems} == rules
    assert found.value.total == 4


def test_an_overlong_text_of_a_dictionary_is_never_a_class() -> None:
    """It is replaced before rows are taken, and by nothing that may be a name: `?` is one here."""
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(["?", "x" * 10_000]))
    with pytest.raises(InvalidRows) as found:
        classes_of(column, DOMAIN)
    assert [p.row for p in found.value.problems] == [1]


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.bool_(), pa.binary(), pa.date32()])
def test_other_columns_are_refused_whole(kind: pa.DataType) -> None:
    with pytest.raises(InvalidTable, match="names of classes as text"):
        classes_of(pa.nulls(3, kind), DOMAIN)
    with pytest.raises(InvalidRows):
        classes_of(pa.nulls(3), DOMAIN)


@pytest.mark.parametrize("seed", range(20))
def test_codes_are_those_of_a_dictionary_in_python(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = list({"".join(rng.choice(list("abé中 '"), rng.integers(1, 6))).strip() + "#" for _ in range(40)})
    labels = [names[i] for i in rng.integers(0, len(names), 500)]
    codes = {name: code for code, name in enumerate(names)}
    domain = Domain.from_names(names)
    assert classes_of(pa.array(labels), domain).tolist() == [codes[label] for label in labels]
    planted = np.sort(rng.choice(500, 3, replace=False))
    for row in planted:
        labels[row] += "#"
    with pytest.raises(InvalidRows) as found:
        classes_of(pa.array(labels), domain)
    assert [p.row for p in found.value.problems] == planted.tolist()


@pytest.mark.parametrize("dictionary", [False, True])
def test_bad_rows_of_a_view_are_named_and_its_empty_texts_are_deletions(dictionary: bool) -> None:
    column = pa.array(["1", "", None, "x"]).cast(pa.string_view())
    if dictionary:
        column = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2], pa.int8()), pa.array(["1", "", "x"]))
    assert absent(column).tolist() == [False, True, True, False]
    with pytest.raises(InvalidRows) as found:
        floats_of(column)
    assert {p.row: p.rule for p in found.value.problems} == {1: EMPTY, 2: EMPTY, 3: NUMBER}
