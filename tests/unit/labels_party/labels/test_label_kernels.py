"""The compiled kernels of digests and runs give what the numpy path gives, bit for bit, and the published vectors."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labels_party.labels import digests, runs
from labels_party.labels.by_id.words import below
from labels_party.labels.digests import kernels, siphash128
from labels_party.labels.runs import Scratch, contains, members, merge, repeated, sort_run, sorted_in_parts
from tests.unit.labels_party.labels.test_digests import KEY, VECTORS

IDS = st.lists(st.text(max_size=40), max_size=60)
HALVES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**64 - 1)), max_size=60)
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[], Any]], tuple[Any, Any]]]:
    """What a call gives on the numpy path, and on the compiled one."""

    def run(call: Callable[[], Any]) -> tuple[Any, Any]:
        monkeypatch.setattr(kernels, "worth", lambda *_rows: False)
        plain = call()
        monkeypatch.setattr(kernels, "worth", lambda *_rows: True)
        return plain, call()

    yield run
    monkeypatch.undo()


def same(pair: tuple[Any, Any]) -> None:
    plain, fast = pair
    if isinstance(plain, tuple):
        for a, b in zip(plain, fast, strict=True):
            np.testing.assert_array_equal(a, b)
            assert a.dtype == b.dtype
    else:
        np.testing.assert_array_equal(plain, fast)


def test_the_published_vectors(both: Any) -> None:
    for n, wanted in VECTORS.items():
        ids = pa.array([bytes(range(n))], pa.binary()).view(pa.string())
        for low, high in both(lambda ids=ids: siphash128(ids, KEY)):
            assert (int(low[0]).to_bytes(8, "little") + int(high[0]).to_bytes(8, "little")).hex() == wanted


@QUICK
@given(IDS, st.binary(min_size=16, max_size=16), st.integers(0, 5), st.booleans())
def test_digests(both: Any, texts: list[str], key: bytes, skipped: int, large: bool) -> None:
    texts = [t.encode("utf-8", "replace").decode() for t in texts]
    ids = pa.array(texts, pa.large_string() if large else pa.string()).slice(skipped)
    same(both(lambda: siphash128(ids, key)))


@QUICK
@given(HALVES, HALVES)
def test_merging_and_membership(both: Any, one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    (a_low, a_high), (b_low, b_high) = (
        (np.array([p[0] for p in ps], np.uint64), np.array([p[1] & 7 if p[1] % 2 else p[1] for p in ps], np.uint64))
        for ps in (one, other)
    )
    a, b = sort_run(a_low, a_high)[0], sort_run(b_low, b_high)[0]
    same(both(lambda: merge([a, b, a])))
    same(both(lambda: members(a, b)))
    same(both(lambda: contains(a, b_low, b_high)))
    held = set(zip(a[0].tolist(), a[1].tolist(), strict=True))
    asked = list(zip(b[0].tolist(), b[1].tolist(), strict=True))
    assert members(a, b).tolist() == [p in held for p in asked]


@given(HALVES)
def test_the_rows_of_a_repeated_digest_are_all_but_its_first(pairs: list[tuple[int, int]]) -> None:
    pairs = [(low, high & 3) for low, high in pairs]
    run, order = sort_run(np.array([p[0] for p in pairs], np.uint64), np.array([p[1] for p in pairs], np.uint64))
    again = sorted(order[repeated(run)].tolist())
    assert again == [i for i, p in enumerate(pairs) if p in pairs[:i]]


def test_large_runs(both: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    low, high = (rng.integers(0, 2**64, 30_000, dtype=np.uint64) for _ in range(2))
    parts = [sort_run(low[i::3], high[i::3])[0] for i in range(3)]
    whole = sort_run(low, high)[0]
    for cached in (runs.CACHED, 1000, 7):
        monkeypatch.setattr(runs, "CACHED", cached)
        for merged in both(lambda: merge(parts)):
            same((whole, merged))
    few = sort_run(low[::500] ^ np.uint64(1), high[::500])[0]
    for found in both(lambda: members(whole, few)):
        assert not found.any()
    for found in both(lambda: members(whole, parts[1])):
        assert found.all()


def test_kernels_load_only_once_many_rows_went_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "rows", 0)
    assert not kernels.worth(digests.LOADED_AFTER - 1)
    assert not kernels.worth(1)  # enough in all, but a call for one row is not worth it
    assert kernels.worth(digests.AT_ONCE)


@pytest.mark.parametrize("n", [2, 3, 1000, 100_000])
def test_digests_are_sorted_in_parts(n: int) -> None:
    """Ties of `high`, and digests that are the same, among them."""
    rng = np.random.default_rng(n)
    low, high = (rng.integers(0, 1 << 64, n, np.uint64) for _ in range(2))
    high[n // 2 :: 500] = high[0]
    low[n // 2 :: 1000] = low[0]
    found = sorted_in_parts(low, high, Scratch())
    assert found is not None
    (sorted_low, sorted_high), order = found
    np.testing.assert_array_equal(order, np.lexsort((low, high)))
    np.testing.assert_array_equal(sorted_low, low[order])
    np.testing.assert_array_equal(sorted_high, high[order])


def test_memory_that_is_used_again_changes_no_order() -> None:
    rng, scratch = np.random.default_rng(2), Scratch()
    for n in (5000, 20_000, 3000):
        low, high = (rng.integers(0, 1 << 64, n, np.uint64) for _ in range(2))
        found = sorted_in_parts(low, high, scratch)
        assert found is not None
        np.testing.assert_array_equal(found[1], np.lexsort((low, high)))
        assert np.shares_memory(found[1], scratch.array("order", 1, np.int64))
        assert not np.shares_memory(found[0][0], scratch.array("divided", 1))


def test_digests_that_are_not_uniform_are_sorted_otherwise() -> None:
    rng = np.random.default_rng(5)
    high = np.concatenate([rng.integers(0, 1 << 64, 50_000, np.uint64), rng.integers(0, 1 << 40, 5_000, np.uint64)])
    low = np.arange(len(high), dtype=np.uint64)
    assert sorted_in_parts(low, high, Scratch()) is None
    (sorted_low, sorted_high), order = sort_run(low, high)
    np.testing.assert_array_equal(order, np.lexsort((low, high)))
    np.testing.assert_array_equal(sorted_high, high[order])
    np.testing.assert_array_equal(sorted_low, low[order])


def test_words_are_compared_as_numbers() -> None:
    edges = [0, 1, 2, (1 << 63) - 1, 1 << 63, (1 << 63) + 1, (1 << 64) - 2, (1 << 64) - 1]
    for one, other in itertools.product(edges, edges):
        assert below(np.uint64(one), np.uint64(other)) == (one < other)
