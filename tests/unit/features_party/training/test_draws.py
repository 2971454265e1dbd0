"""Splits are dealt by keyed hashes of ids: repeatable, of equal parts, out of reach of whoever made the data."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from features_party.tables.buckets import IdHash
from features_party.training.draws import Draws, by_position, dealt, mixed, seed, shuffled

N = 6000
IDS = pa.array([f"s1-{at}" for at in range(N)])
CHANCE = 60.0  # χ² of 16 degrees of freedom is above it 5 times in 10⁷: here once in 10⁴ sets of keys


def of(key: bytes) -> Draws:
    return IdHash.keyed(key).draws(IDS)


def chi2(fold: npt.NDArray[np.integer], column: npt.NDArray[np.integer]) -> float:
    """Of the table of 5 folds against 5 values."""
    table = np.bincount(fold.astype(np.int64) * 5 + column, minlength=25).reshape(5, 5).astype(np.float64)
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / table.sum()
    return float(((table - expected) ** 2 / expected).sum())


def test_the_same_key_deals_alike_whatever_the_order_of_rows() -> None:
    assert np.array_equal(of(b"a"), of(b"a"))
    assert np.array_equal(IdHash.keyed(b"a").draws(IDS.take(pa.array(np.arange(N)[::-1]))), of(b"a")[::-1])
    assert not np.array_equal(of(b"a"), of(b"b"))
    folds = dealt(of(b"a"), 5, "x")
    assert np.bincount(folds).tolist() == [1200] * 5
    assert sorted(shuffled(of(b"a"), "x").tolist()) == list(range(N))
    assert seed(of(b"a"), "x") == seed(of(b"a")[::-1], "x") != seed(of(b"b"), "x") != seed(of(b"b"), "y")
    assert 0 <= seed(of(b"a"), "x") < 1 << 31


def test_purposes_and_keys_know_nothing_of_each_other() -> None:
    folds = [dealt(of(bytes([key])), 5, purpose) for key in range(2) for purpose in ("a", "b", "c")]
    assert max(chi2(one, other) for at, one in enumerate(folds) for other in folds[:at]) < CHANCE
    assert chi2(folds[0], folds[0]) > 1000.0  # what the test can see


@pytest.mark.parametrize("number", range(5))
def test_folds_do_not_follow_what_numpy_made_with_a_seed(number: int) -> None:
    """The first column of data from `default_rng(number)`, and its permutation, which fixed seeds used to deal by."""
    column = np.random.default_rng(number).integers(0, 5, N)
    shuffle = np.random.default_rng(number).permutation(N) % 5
    for draws in (of(b"message"), by_position(np.arange(N), column.astype(np.float64))):
        for purpose in ("effects of categories", "validation", "estimate", "crossed effects"):
            fold = dealt(draws, 5, purpose)
            assert chi2(fold, column) < CHANCE
            assert chi2(fold, shuffle) < CHANCE
    assert chi2(np.random.default_rng(number).integers(0, 5, N), column) > 1000.0  # the hold-out of a fixed seed


def test_rows_of_one_example_share_a_fold() -> None:
    groups = np.random.default_rng(0).integers(0, 300, 2000)
    fold = dealt(by_position(groups, np.zeros(1)), 5, "validation")
    assert all(len(set(fold[groups == group])) <= 1 for group in range(300))


@pytest.mark.parametrize("bit", [0, 1, 31, 32, 62, 63])
def test_every_bit_of_a_draw_is_as_good_as_any(bit: int) -> None:
    """Ids differ in their last digits. Each share is within 5 standard errors of a half."""
    found = mixed(of(b"a"), "some purpose") >> np.uint64(bit) & np.uint64(1)
    assert abs(float(found.mean()) - 0.5) < 5 * 0.5 / np.sqrt(N)
    assert abs(float((found[1:] ^ found[:-1]).mean()) - 0.5) < 5 * 0.5 / np.sqrt(N)
