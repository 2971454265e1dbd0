"""The background thread of both services: it goes on after failures, says nothing of what they hold, and ends."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator

import pytest

from label_dp.errors import Conflict
from label_dp.http.worker import Worker

SECRET = "label 417"


class Rounds(Worker):
    """Does the given rounds, then says so and has nothing to do."""

    def __init__(self, *rounds: Callable[[], bool], poll_seconds: float = 0.001) -> None:
        super().__init__("rounds", poll_seconds)
        self.left, self.done, self.held = list(rounds), threading.Event(), 0

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        self.held += 1
        yield
        self.held -= 1

    def round(self) -> bool:
        assert self.held == 1
        if not self.left:
            self.done.set()
            return False
        return self.left.pop(0)()


class Silent(Rounds):
    logs_codes = False


def refuse() -> bool:
    raise Conflict(SECRET)


def break_down() -> bool:
    raise ValueError(SECRET)


@pytest.mark.parametrize(("kind", "logged"), [(Rounds, ["conflict", "ValueError"]), (Silent, ["ValueError"])])
def test_a_failure_is_logged_without_its_text_and_the_next_round_comes(
    kind: type[Rounds], logged: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    worker = kind(refuse, break_down)
    with caplog.at_level(logging.DEBUG, "label_dp.worker"):
        worker.start()
        assert worker.done.wait(10)
        assert worker.alive()
        worker.stop()
    assert (worker.alive(), worker.held) == (False, 0)
    assert len(caplog.messages) == len(logged)
    assert all(word in message for word, message in zip(logged, caplog.messages, strict=True))
    assert SECRET not in caplog.text


def test_more_work_is_done_without_a_pause_and_a_call_wakes_it() -> None:
    worker = Rounds(lambda: True, lambda: False, poll_seconds=3600.0)
    worker.start()
    try:
        assert not worker.done.wait(0.2)  # both rounds, then an hour's pause
        assert worker.left == []
        worker.wake()
        assert worker.done.wait(10)
    finally:
        worker.stop()


def test_one_that_was_never_started_is_stopped_at_once() -> None:
    worker = Rounds()
    worker.stop()
    assert not worker.alive()
