"""Sorted runs of digests behave as sets, also when their upper halves collide."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from labels_party.labels.runs import Run, beyond, contains, merge, run_parts, sort_run, within

# few different halves, so that 64-bit collisions are the rule
HALF = st.sampled_from([0, 1, 2, 2**63, 2**64 - 1])
DIGEST = st.tuples(HALF, HALF)
SETS = st.sets(DIGEST, max_size=20)


def run_bytes(run: Run) -> bytes:
    return b"".join(run_parts(run))


def run_of(digests: set[tuple[int, int]] | list[tuple[int, int]]) -> Run:
    pairs = list(digests)
    low = np.array([p[0] for p in pairs], np.uint64)
    high = np.array([p[1] for p in pairs], np.uint64)
    return sort_run(low, high)[0]


def pairs_of(run: Run) -> list[tuple[int, int]]:
    return list(zip(run[0].tolist(), run[1].tolist(), strict=True))


@given(SETS)
def test_a_run_is_sorted_and_keeps_every_digest(digests: set[tuple[int, int]]) -> None:
    found = pairs_of(run_of(digests))
    assert set(found) == digests
    assert found == sorted(found, key=lambda p: (p[1], p[0]))


@given(SETS)
def test_the_order_that_sorted_it_is_given(digests: set[tuple[int, int]]) -> None:
    pairs = list(digests)
    low, high = (np.array([p[i] for p in pairs], np.uint64) for i in (0, 1))
    (sorted_low, sorted_high), order = sort_run(low, high)
    assert low[order].tolist() == sorted_low.tolist()
    assert high[order].tolist() == sorted_high.tolist()


@given(st.lists(DIGEST, max_size=20), st.lists(DIGEST, max_size=20))
def test_membership_is_that_of_a_set(digests: list[tuple[int, int]], asked: list[tuple[int, int]]) -> None:
    low, high = (np.array([p[i] for p in asked], np.uint64) for i in (0, 1))
    assert contains(run_of(digests), low, high).tolist() == [p in digests for p in asked]


def test_half_a_digest_is_not_the_digest() -> None:
    run = run_of([(1, 7), (2, 7), (3, 9)])
    low, high = np.array([3, 1, 3, 2, 1], np.uint64), np.array([7, 7, 9, 7, 9], np.uint64)
    assert contains(run, low, high).tolist() == [False, True, True, True, False]


def test_membership_in_an_empty_run_and_of_nothing() -> None:
    empty = run_of([])
    assert contains(empty, np.array([1], np.uint64), np.array([1], np.uint64)).tolist() == [False]
    nothing = np.zeros(0, np.uint64)
    assert contains(run_of([(1, 1)]), nothing, nothing).tolist() == []


@given(st.lists(SETS, min_size=1, max_size=4))
def test_merging_is_union_whatever_the_order(sets: list[set[tuple[int, int]]]) -> None:
    disjoint: list[set[tuple[int, int]]] = []
    for s in sets:
        disjoint.append(s - set().union(*disjoint))
    merged = merge([run_of(s) for s in disjoint])
    assert set(pairs_of(merged)) == set().union(*sets)
    assert run_bytes(merged) == run_bytes(merge([run_of(s) for s in reversed(disjoint)]))


@given(SETS, SETS)
def test_equal_sets_and_only_they_have_equal_bytes(a: set[tuple[int, int]], b: set[tuple[int, int]]) -> None:
    assert (run_bytes(run_of(a)) == run_bytes(run_of(b))) == (a == b)
    assert len(run_bytes(run_of(a))) == 16 * len(a)


@given(st.lists(st.tuples(st.lists(DIGEST, max_size=6), st.integers(0, 6)), max_size=5), st.sets(DIGEST))
def test_what_counts_is_what_is_held_more_often_than_held_back(
    uploads: list[tuple[list[tuple[int, int]], int]], asked: set[tuple[int, int]]
) -> None:
    """Each upload is a run, some of whose digests are held back."""
    runs, held_back = [run_of(sent) for sent, _ in uploads], [run_of(sent[:back]) for sent, back in uploads]
    sent, back = (Counter(p for run in found for p in pairs_of(run)) for found in (runs, held_back))
    assert pairs_of(beyond(runs, held_back)) == sorted(sent - back, key=lambda p: (p[1], p[0]))
    some = run_of(asked)
    assert set(pairs_of(beyond(within(runs, some), within(held_back, some)))) == (sent - back).keys() & asked


def test_many_digests_without_collisions() -> None:
    rng = np.random.default_rng(3)
    low, high = (rng.integers(0, 2**64, 50_000, dtype=np.uint64) for _ in range(2))
    run, _ = sort_run(low, high)
    assert contains(run, low, high).all()
    assert not contains(run, low ^ np.uint64(1), high).any()
    assert not contains(run, low, high ^ np.uint64(1)).any()
