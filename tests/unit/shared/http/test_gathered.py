"""Work that waits at the same time is one call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from label_dp.errors import Unavailable
from label_dp.http.gathered import MOST, MOST_WEIGHT, Gathered


def test_what_comes_meanwhile_is_done_together_and_each_gets_its_own() -> None:
    calls: list[tuple[str, int]] = []
    go = threading.Event()

    def work(key: str, items: Sequence[int]) -> list[int | Exception]:
        calls.append((key, len(items)))
        go.wait(10)
        return [ValueError(str(i)) if i % 10 == 9 else 2 * i for i in items]

    async def all_of_them() -> list[int | BaseException]:
        gathered = Gathered[int, int](work)
        asked = [asyncio.create_task(gathered.do("a", i)) for i in range(MOST + 20)]
        other = asyncio.create_task(gathered.do("b", 1))
        await asyncio.sleep(0.05)
        asked[1].cancel()  # whoever waits may go away
        go.set()
        assert await other == 2
        found = await asyncio.gather(*asked, return_exceptions=True)
        await asyncio.gather(*gathered._running)  # which wait a moment for more
        assert gathered._waiting == {}
        return found

    found = asyncio.run(all_of_them())
    assert sum(n for key, n in calls if key == "a") == MOST + 20
    assert sorted(calls)[-1] == ("b", 1)
    assert len(calls) == 3
    for i, result in enumerate(found):
        if i == 1:
            assert isinstance(result, asyncio.CancelledError)
        elif i % 10 == 9:
            assert isinstance(result, ValueError)
            assert str(result) == str(i)
        else:
            assert result == 2 * i


def test_a_call_of_several_weighs_at_most_so_much() -> None:
    calls: list[list[int]] = []

    def work(_: str, items: Sequence[int]) -> list[int | Exception]:
        calls.append(list(items))
        return list(items)

    async def ask() -> None:
        gathered = Gathered[int, int](work, lambda item: item)
        weights = [1, MOST_WEIGHT // 2, MOST_WEIGHT // 2, 1, MOST_WEIGHT + 1, 2]
        assert await asyncio.gather(*(gathered.do("", weight) for weight in weights)) == weights

    asyncio.run(ask())
    half = MOST_WEIGHT // 2
    assert calls == [[1, half], [half, 1], [MOST_WEIGHT + 1], [2]]


def test_work_that_fails_fails_for_all_of_its_call() -> None:
    def work(_: str, items: Sequence[int]) -> list[int | Exception]:
        raise OSError(len(items))

    async def ask() -> None:
        with pytest.raises(OSError, match="1"):
            await Gathered[int, int](work).do("", 1)

    asyncio.run(ask())


class Death(BaseException):
    """What ends a thread and is no fault of the work."""


def test_nobody_waits_for_a_call_that_died() -> None:
    go, calls = threading.Event(), list[int]()

    def work(_: str, items: Sequence[int]) -> list[int | Exception]:
        calls.append(len(items))
        if len(calls) == 1:
            go.wait(10)
            raise Death
        return list(items)

    async def ask() -> list[int | BaseException]:
        gathered = Gathered[int, int](work)
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        waiting = [asyncio.create_task(gathered.do("a", i)) for i in range(3)]
        await asyncio.sleep(0.05)
        go.set()
        outcomes = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 10)
        assert await gathered.do("a", 7) == 7  # the next one finds a free place
        return outcomes

    assert [type(outcome) for outcome in asyncio.run(ask())] == [Unavailable] * 3
