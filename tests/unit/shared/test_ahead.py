"""Work on a stream in threads: the same items in the same order, few ahead, and errors where the caller is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from label_dp.ahead import ahead, in_turn


def test_results_come_in_the_order_of_their_items() -> None:
    """The second is done before the first."""
    second = threading.Event()

    def work(item: int) -> int:
        if item == 0:
            assert second.wait(10)
        if item == 1:
            second.set()
        return 10 * item

    with ThreadPoolExecutor(2) as pool:
        assert list(in_turn(pool, work, range(5), 1)) == [0, 10, 20, 30, 40]


@pytest.mark.parametrize("most", [0, 1, 3])
def test_no_more_items_are_taken_than_said(most: int) -> None:
    taken = []

    def items() -> Iterator[int]:
        for item in range(10):
            taken.append(item)
            yield item

    with ThreadPoolExecutor(2) as pool:
        for given, _ in enumerate(in_turn(pool, str, items(), most)):
            assert len(taken) <= given + most + 1


def test_what_work_raises_is_raised_where_its_result_would_come() -> None:
    with ThreadPoolExecutor(2) as pool:
        found = in_turn(pool, lambda item: 1 // item, [1, 0, 1], 2)
        assert next(found) == 1
        with pytest.raises(ZeroDivisionError):
            next(found)


def test_a_stream_that_fails_fails_at_the_same_item() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("spoiled")

    found = ahead(items())
    assert next(found) == 1
    with pytest.raises(ValueError, match="spoiled"):
        next(found)


def test_a_stream_that_is_left_is_closed() -> None:
    closed = threading.Event()

    def items() -> Iterator[int]:
        try:
            yield from range(100)
        finally:
            closed.set()

    found = ahead(items())
    assert next(found) == 0
    found.close()  # type: ignore[attr-defined]  # it is a generator
    assert closed.is_set()
