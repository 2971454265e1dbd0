"""A training's events in both flavours: resumed behind the last one that came whole, until the training ends."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from features_party.client.trainings import PAUSE_SECONDS, RECONNECTIONS, TrainingCalls
from label_dp import errors
from tests.support.scripted import FLAVOURS, Broken, Line

MORE = b'id: 5\ndata:{"state": "running", "n": 1}\n\n'
STREAM = {"Content-Type": "text/event-stream"}
pytestmark = pytest.mark.parametrize("flavour", FLAVOURS)


def events() -> Any:
    return TrainingCalls.events(None, "tr_1")


def script(*bodies: Any) -> Any:
    left = iter(bodies)

    def handle(_: httpx.Request) -> httpx.Response:
        body = next(left)
        if isinstance(body, int):
            return httpx.Response(body, json={"code": "unavailable", "detail": "busy"})
        given = {"stream": body} if isinstance(body, Broken) else {"content": body}
        return httpx.Response(200, headers=STREAM, **given)

    return handle


def test_a_stream_that_breaks_is_resumed_behind_what_came_whole(flavour: str) -> None:
    broken = Broken(b': hello\nretry: 2\n\nid: 4\nevent: x\ndata: {"state":\ndata: "running"}\n\nid: 5\nda', b'ta: {"s')
    line = Line(flavour, script(broken, 503, MORE, b'data: {"state": "failed"}\n\n'))
    found = line.follow(events())
    assert [(e["state"], e.get("n")) for e in found] == [("running", None), ("running", 1), ("failed", None)]
    assert [r.headers.get("last-event-id") for r in line.seen] == [None, "4", "4", "5"]
    assert {r.headers["accept"] for r in line.seen} == {"text/event-stream"}
    assert line.pauses[0] == line.pauses[-1] == PAUSE_SECONDS
    assert broken.closed


def test_what_follows_the_end_is_not_read(flavour: str) -> None:
    line = Line(flavour, script(b'data: {"state": "succeeded"}\n\ndata: {"state": "running"}\n\n'))
    assert [e["state"] for e in line.follow(events())] == ["succeeded"]
    assert len(line.seen) == 1


def test_a_stream_that_never_comes_is_given_up(flavour: str) -> None:
    line = Line(flavour, lambda _: httpx.Response(503))
    with pytest.raises(errors.Unavailable):
        line.follow(events())
    assert len(line.seen) == RECONNECTIONS + 1


def test_a_refusal_is_the_callers(flavour: str) -> None:
    line = Line(flavour, lambda _: httpx.Response(404, json={"detail": "There is no such training."}))
    with pytest.raises(errors.RemoteProblem, match="no such training"):
        line.follow(events())
    assert len(line.seen) == 1


def test_who_stops_listening_leaves_the_connection(flavour: str) -> None:
    broken = Broken(b'data: {"state": "running"}\n\n')
    line = Line(flavour, script(broken))
    assert len(line.follow(events(), most=1)) == 1
    assert broken.closed
    assert len(line.seen) == 1
