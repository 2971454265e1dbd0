"""Download of a file of known size and digest, resumed after interruptions, perhaps from a redirect."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx

from label_dp.client.conversation import MORE, Conversation, Open, Request, Retried
from label_dp.documents.arriving import Arriving
from label_dp.errors import PreconditionFailed, RangeNotSatisfiable, RemoteProblem, Unavailable

Bytes = Callable[[int], None]
Elsewhere = Callable[[str], str]  # maps a redirect's target to the URL to call, or raises
STALE = (412, 416)
PROGRESS = 1 << 20  # bytes: a round of tries that brings less is the last one
TEMPORARY_REDIRECT = 307
_SPAN = re.compile(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18}|\*)", re.ASCII)
_STRONG = re.compile(r'"[\x21\x23-\x7e]{1,200}"', re.ASCII)


def download(
    where: str, part: Arriving, on_bytes: Bytes = lambda _n: None, elsewhere: Elsewhere | None = None
) -> Conversation[None]:
    """Stream the missing bytes into `part` until it is whole and durable.

    `on_bytes` is called with the bytes present, before each try and with each piece; an error of it ends the download.
    A redirect is followed if `elsewhere` allows it. Raises Unavailable, DigestMismatch and the errors of `elsewhere`.
    """
    versions = _Versions()
    yield from _persisted(lambda: _rest(where, part, versions, on_bytes, elsewhere), part)
    if part.resumed and not part.whole:  # an earlier part may be of another version
        part.restart()
        yield from _persisted(lambda: _rest(where, part, versions, on_bytes, elsewhere), part)
    part.finish()


def _persisted(attempt: Callable[[], Conversation[None]], part: Arriving) -> Conversation[None]:
    """Repeat rounds of tries while they make progress: a large file over a poor line breaks off more often than one
    round allows."""
    before = part.have
    while True:
        try:
            yield Retried(attempt)
        except Unavailable:
            if part.have < before + PROGRESS:
                raise
            before = part.have
        else:
            return


@dataclass
class _Versions:
    """ETag of the bytes present, by sender: the service itself, or a redirect's target (True)."""

    tags: dict[bool, str] = field(default_factory=dict)

    def headers(self, have: int, foreign: bool) -> dict[str, str]:
        if not have:
            return {}
        tag = self.tags.get(foreign)
        return {"Range": f"bytes={have}-"} | ({"If-Match": tag} if tag is not None else {})

    def same(self, response: httpx.Response, foreign: bool) -> bool:
        """Return whether the answer is of the version present, as far as its ETag shows."""
        tag = response.headers.get("ETag", "")
        present = self.tags.get(foreign)
        return present is None or _STRONG.fullmatch(tag) is None or tag == present

    def note(self, response: httpx.Response, foreign: bool) -> None:
        tag = response.headers.get("ETag", "")
        self.tags = {foreign: tag} if _STRONG.fullmatch(tag) else {}


def _rest(
    where: str, part: Arriving, versions: _Versions, on_bytes: Bytes, elsewhere: Elsewhere | None
) -> Conversation[None]:
    """Stream the missing bytes once. Raises TransportError if it breaks off again."""
    on_bytes(part.have)
    if not part.missing:
        return
    try:
        response, foreign = yield from _opened(where, part, versions, elsewhere)
    except (PreconditionFailed, RangeNotSatisfiable, RemoteProblem) as error:
        if part.have and (not isinstance(error, RemoteProblem) or error.status in STALE):
            _forget(part, "it is another version now")
        raise
    if part.have and (response.status_code != httpx.codes.PARTIAL_CONTENT or not _continues(response, part)):
        part.restart()  # the server sends the whole file, or another range
        if response.status_code == httpx.codes.PARTIAL_CONTENT:
            raise httpx.ReadError("another range was sent")
    elif part.have and not versions.same(response, foreign):
        _forget(part, "it is another version now")
    part.resumed |= part.have > 0
    versions.note(response, foreign)
    # pieces as they arrive: a buffered part of a larger piece would be lost when the connection breaks
    while (piece := (yield MORE)) is not None:
        if len(piece) > part.missing:
            part.restart()
            raise Unavailable(f"The labels party sent more bytes of '{part.entry.name}' than its manifest states.")
        part.write(piece)
        on_bytes(part.have)
    if part.missing:
        raise httpx.ReadError(f"'{part.entry.name}' broke off")


def _opened(
    where: str, part: Arriving, versions: _Versions, elsewhere: Elsewhere | None
) -> Conversation[tuple[httpx.Response, bool]]:
    """Open the answer; returns its head and whether another origin sent it."""
    request = Request("GET", where, headers=versions.headers(part.have, foreign=False))
    response: httpx.Response = yield Open(request, large=True, redirects=elsewhere is not None)
    if response.status_code != TEMPORARY_REDIRECT or elsewhere is None:
        return response, False
    target = elsewhere(response.headers.get("Location", ""))
    request = Request("GET", target, headers=versions.headers(part.have, foreign=True), foreign=True)
    return (yield Open(request, large=True)), True


def _continues(response: httpx.Response, part: Arriving) -> bool:
    span = response.headers.get("Content-Range")
    if span is None:  # the digest decides in the end
        return True
    match = _SPAN.fullmatch(span)
    return match is not None and int(match[1]) == part.have and match[2] in ("*", str(part.entry.bytes))


def _forget(part: Arriving, why: str) -> None:
    """Begin the file anew. Raises ReadError."""
    part.restart()
    raise httpx.ReadError(why)
