"""Tries of a request in both flavours: what is tried again, after how long, under which key, and what becomes of it."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from label_dp import errors
from label_dp.client.budgets import Late
from label_dp.client.conversation import Conversation, Request, ask, content, get, path, post
from label_dp.client.peer import BUSY, LONGEST_PAUSE, RETRIES, Peer
from tests.support.scripted import FLAVOURS, Broken, Line

IN_FLIGHT = {"code": "in-flight", "detail": "Still being answered."}
pytestmark = pytest.mark.parametrize("flavour", FLAVOURS)


def script(*answers: httpx.Response | Exception) -> Callable[[httpx.Request], httpx.Response]:
    """These answers, the last one for ever."""
    left = itertools.chain(answers, itertools.repeat(answers[-1]))

    def handle(_: httpx.Request) -> httpx.Response:
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)

    return handle


@pytest.mark.parametrize(
    "trouble", [*(httpx.Response(status) for status in sorted(BUSY)), httpx.ConnectError("no"), httpx.ReadTimeout("no")]
)
def test_passing_trouble_is_waited_out_under_one_key(flavour: str, trouble: Any) -> None:
    line = Line(flavour, script(trouble, trouble, httpx.Response(200, json={"id": "a"})))
    assert line.run(post("things", body={"n": 1})) == {"id": "a"}
    assert len(line.seen) == 3
    assert len({r.headers["idempotency-key"] for r in line.seen}) == 1
    assert {r.headers["authorization"] for r in line.seen} == {"Bearer key"}
    assert {r.content for r in line.seen} == {line.seen[0].content}
    assert len(line.pauses) == 2


def test_requests_have_keys_of_their_own_and_reading_has_none(flavour: str) -> None:
    line = Line(flavour, script(httpx.Response(200, json={})))

    def twice() -> Conversation[None]:
        yield from post("things")
        yield from post("things")
        yield from get("things")
        yield from ask(Request("POST", path("things"), key="mine"))

    line.run(twice())
    keys = [r.headers.get("idempotency-key") for r in line.seen]
    assert keys[0] != keys[1]
    assert keys[2:] == [None, "mine"]


def test_pauses_grow_up_to_a_bound_and_are_spread(flavour: str) -> None:
    line = Line(flavour, script(httpx.Response(503)), retries=12)
    with pytest.raises(errors.Unavailable, match=r"The thing at http://x did not answer in 13 attempts \(status 503\)"):
        line.run(get("things"))
    assert len(line.seen) == 13
    assert all(0 < pause <= LONGEST_PAUSE for pause in line.pauses)
    assert max(line.pauses[:2]) < 0.5
    assert max(line.pauses[7:]) > 1
    assert len(set(line.pauses)) == 12


@pytest.mark.parametrize(("asked", "pause"), [("3", 3.0), ("0", 0.0), ("3600", LONGEST_PAUSE)])
def test_a_pause_that_the_service_asks_for_is_kept_within_bounds(flavour: str, asked: str, pause: float) -> None:
    line = Line(flavour, script(httpx.Response(429, headers={"Retry-After": asked}), httpx.Response(200, json={})))
    line.run(get("things"))
    assert line.pauses == [pause]


def test_no_pause_is_read_from_what_is_no_number(flavour: str) -> None:
    for odd in ("-1", "soon", "1e9", "nan"):
        line = Line(flavour, script(httpx.Response(503, headers={"Retry-After": odd}), httpx.Response(200, json={})))
        line.run(get("things"))
        assert 0 < line.pauses[0] < 0.5


@pytest.mark.parametrize("status", [400, 401, 404, 409, 422, 500, 501, 302])
def test_a_refusal_is_raised_at_once_where_the_conversation_waits(flavour: str, status: int) -> None:
    line = Line(flavour, script(httpx.Response(status, json={"code": "why", "detail": "No."})))

    def careful() -> Conversation[Any]:
        try:
            yield from get("things")
        except errors.RemoteProblem as problem:
            return problem.status, problem.problem_code, problem.detail
        return None

    assert line.run(careful()) == (status, "why", "No.")
    with pytest.raises(errors.RemoteProblem, match=r"No\."):
        line.run(get("things"))
    assert len(line.seen) == 2


@pytest.mark.parametrize("body", [b"<html>", b"[" * 100_000, b"[1]", b"x" * (1 << 20)])
def test_a_refusal_without_a_problem_names_its_status(flavour: str, body: bytes) -> None:
    line = Line(flavour, script(httpx.Response(418, content=body)))
    with pytest.raises(errors.RemoteProblem, match="status 418"):
        line.run(get("things"))


def test_our_own_first_try_is_waited_for(flavour: str) -> None:
    first = httpx.Response(409, json=IN_FLIGHT, headers={"Retry-After": "0"})
    line = Line(flavour, script(httpx.ReadError("lost"), first, httpx.Response(200, json={"id": "a"})))
    assert line.run(post("things")) == {"id": "a"}
    stuck = Line(flavour, script(first), retries=2)
    with pytest.raises(errors.RemoteProblem) as refusal:
        stuck.run(post("things"))
    assert refusal.value.problem_code == "in-flight"
    assert len(stuck.seen) == 3


def test_a_body_that_breaks_off_is_asked_for_again(flavour: str) -> None:
    broken = Broken(b'{"a"')
    answers = iter([httpx.Response(200, stream=broken), httpx.Response(200, json={"a": 1})])
    line = Line(flavour, lambda _: next(answers))
    assert line.run(get("things")) == {"a": 1}
    assert broken.closed


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b"nan"])
def test_what_is_no_json_object_is_refused(flavour: str, body: bytes) -> None:
    line = Line(flavour, script(httpx.Response(200, content=body)))
    with pytest.raises(errors.Unavailable, match="not JSON"):
        line.run(get("things"))


def test_a_packed_answer_is_unpacked_but_of_a_stranger_it_is_refused(flavour: str) -> None:
    packed = httpx.Response(200, content=gzip.compress(b'{"a": 1}'), headers={"Content-Encoding": "gzip"})

    def handle(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=gzip.compress(b'{"a": 1}'), headers=packed.headers)

    assert Line(flavour, handle).run(get("things")) == {"a": 1}
    stranger = Line(flavour, handle, wary=True)
    with pytest.raises(errors.Unavailable, match="encoded"):
        stranger.run(get("things"))
    assert stranger.seen[0].headers["accept-encoding"] == "identity"


def test_of_a_stranger_only_what_is_needed_is_read_and_nothing_passed_on(flavour: str) -> None:
    big = script(httpx.Response(200, content=b" " * (3 << 19) + b"{}"))
    assert Line(flavour, big).run(get("things")) == {}
    with pytest.raises(errors.Unavailable, match="larger than the 1572864 bytes"):
        Line(flavour, big, wary=True).run(get("things"))
    with pytest.raises(errors.Unavailable, match="larger than the 10 bytes"):
        Line(flavour, big).run(content("things", most=10))
    down = Line(flavour, script(httpx.Response(500)), wary=True, retries=1)
    with pytest.raises(errors.Unavailable) as refusal:
        down.run(get("things"))
    assert len(down.seen) == 2
    assert "500" not in refusal.value.detail
    assert "http://x" not in refusal.value.detail


@pytest.mark.parametrize(
    ("url", "what"),
    [
        *((url, "URL") for url in ("ftp://x", "x", "http://", "http://:8001", "http://x:nine", "http://x:99999")),
        *((url, "URL") for url in ("http://[::1", "http://x\n", "http://x?a=1", "http://x#a")),
    ],
)
def test_a_url_that_no_try_could_reach_is_refused_before_any(flavour: str, url: str, what: str) -> None:
    with pytest.raises(errors.InvalidInput, match=what):
        Peer(flavour, url, "k")


@pytest.mark.parametrize("key", ["kéy", "a b", "a\nb", "a\r\nX: y", "a\tb", "a\x00"])
def test_a_key_that_is_none_is_refused_before_any_try(flavour: str, key: str) -> None:
    with pytest.raises(errors.InvalidInput, match=r"API key .* cannot be used in a request") as refusal:
        Peer(flavour, "http://x", key)
    assert key not in refusal.value.detail


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\r", " ", "\t"])
def test_the_end_of_a_line_is_no_part_of_a_key(flavour: str, end: str) -> None:
    assert Peer(flavour, "http://x", f"lp_key{end}").headers()["Authorization"] == "Bearer lp_key"


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (httpx.LocalProtocolError("Illegal header value"), errors.InvalidInput),
        (httpx.UnsupportedProtocol("no"), errors.InvalidInput),
        (httpx.ProxyError("407"), errors.Unavailable),
        (Late("It took too long."), errors.Unavailable),
    ],
)
def test_what_no_further_try_would_change_is_said_at_once(
    flavour: str, failure: Exception, kind: type[errors.LabelDPError]
) -> None:
    line = Line(flavour, script(failure))
    with pytest.raises(kind) as refusal:
        line.run(post("things", body={}))
    assert (len(line.seen), line.pauses) == (1, [])
    assert "attempts" not in refusal.value.detail


def test_a_restart_of_half_a_minute_is_waited_out(flavour: str) -> None:
    """The stated budget of a call; its pauses are spread, so this holds in every draw."""
    for _ in range(20):
        line = Line(flavour, script(httpx.ConnectError("refused")))
        with pytest.raises(errors.Unavailable, match=f"{RETRIES + 1} attempts"):
            line.run(get("things"))
        assert 30 < sum(line.pauses) < 45


@pytest.mark.parametrize("part", ["", ".", ".."])
def test_dots_do_not_leave_the_path(flavour: str, part: str) -> None:
    line = Line(flavour, script(httpx.Response(200, json={})))
    with pytest.raises(errors.InvalidInput):
        line.run(get("things/{}/more", part))
    line.run(get("things/{}/more", "a/b ü?"))
    assert [r.url.raw_path for r in line.seen] == [b"/v1/things/a%2Fb%20%C3%BC%3F/more"]
