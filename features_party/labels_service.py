"""The client of the labels party: the few calls of its REST interface that a features party makes.

Connection failures, 429 and 5xx answers are retried with growing pauses; a download that breaks off is continued
with `Range`. What comes back is only bytes: `features_party.pull` verifies them.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import httpx

from features_party.labels_url import labels_url
from shared.errors import (
    Conflict,
    IdempotencyInFlight,
    InvalidInput,
    LabelDPError,
    NotFound,
    Refusal,
    Unauthenticated,
    Unavailable,
)
from shared.message.bundle import MAX_ENVELOPE_BYTES
from shared.message.manifest import FileEntry

ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
MAX_JSON_BYTES = 1 << 20
MAX_PROBLEM_BYTES = 1 << 16
MAX_PAGE_BYTES = 1 << 22
PAGE, MOST_PAGES = 500, 1000
MOST_MISSING = 1000
PIECE = 1 << 20  # bytes of a body that are sent at once
MAX_DETAIL = 200
ATTEMPTS = 6
RETRIED = {429, 500, 502, 503, 504}
PLAIN = {"Accept-Encoding": "identity"}  # a packed answer could unpack to anything
TIMEOUT = httpx.Timeout(30.0, read=120.0)

Sleep = Callable[[float], None]
Bytes = Callable[[int], None]


@dataclass(frozen=True)
class ListedRelease:
    """One entry of the labels party's list. Nothing in it is verified; `id` is a plain name, fit for a file."""

    id: str
    published: str
    population_name: str
    epsilon: str
    manifest_sha256: str


_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)
_MEMBERS = {
    "id": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"),
    "published": re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII),
    "population_name": re.compile(r".{1,400}"),
    "epsilon": re.compile(r"[0-9.]{1,40}"),
    "manifest_sha256": re.compile(r"[0-9a-f]{64}"),
}


def _listed(data: Any) -> list[ListedRelease] | None:
    found = []
    for entry in data if isinstance(data, list) else [None]:
        members = {name: entry.get(name) for name in _MEMBERS} if isinstance(entry, dict) else {"id": None}
        if not all(isinstance(value, str) and _MEMBERS[name].fullmatch(value) for name, value in members.items()):
            return None
        found.append(ListedRelease(**members | {"population_name": _printable(str(members["population_name"]))}))
    return found


def _receipt_state(data: Any) -> bool:
    if not isinstance(data, dict) or not isinstance(data.get("key_id"), str):
        return False
    last, digest, missing = data.get("last"), data.get("digest"), data.get("missing")
    digested = digest is None if last == 0 else isinstance(digest, str) and _HEX.fullmatch(digest) is not None
    if not isinstance(missing, list) or len(missing) > MOST_MISSING:
        return False
    numbers = all(type(m) is int and 0 < m < 1 << 53 for m in missing)
    return type(last) is int and 0 <= last < 1 << 53 and digested and numbers


class LabelsService:
    """One labels party at `url`. Use as a context manager. Errors are typed; texts never hold the API key."""

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Sleep = time.sleep,
    ) -> None:
        base = labels_url(url)
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._sleep = sleep
        try:
            # a redirect would carry the key to another host, so none is followed
            self._http = httpx.Client(
                base_url=base, headers=headers, timeout=TIMEOUT, transport=transport, follow_redirects=False
            )
        except (httpx.InvalidURL, ValueError, UnicodeError):
            raise InvalidInput("The labels party's URL or the API key cannot be used in a request.") from None

    def __enter__(self) -> LabelsService:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def release(self, release: str) -> dict[str, Any]:
        """State, progress and digests of a release."""
        return self._state(f"/v1/releases/{_part(release)}")

    def answer(self, answer: str) -> dict[str, Any]:
        """State, cost and digest of an answer of whatever kind."""
        return self._state(f"/v1/answers/{_part(answer)}")

    def _state(self, path: str) -> dict[str, Any]:
        data = _json(self._request("GET", path, MAX_JSON_BYTES))
        if data is None:
            raise Unavailable("The labels party's answer is not JSON; check that the URL is the one of its service.")
        return data

    def published(self, since: str, population: str | None = None) -> Iterator[ListedRelease]:
        """The releases published for us on the day `since` (2026-11-01) or later, oldest first. Raises Unavailable."""
        params = {"since": since, "limit": PAGE} | ({"population": population} if population is not None else {})
        seen: set[str] = set()
        while len(seen) < MOST_PAGES:
            data = _json(self._request("GET", "/v1/releases", MAX_PAGE_BYTES, params=params)) or {}
            listed, after = _listed(data.get("releases")), data.get("next")
            # a page that comes again would never end
            if listed is None or (after is not None and (not listed or after != listed[-1].id or after in seen)):
                raise Unavailable(
                    "The labels party's list of releases is malformed; its version may be too old to have one."
                )
            yield from listed
            if after is None:
                return
            seen.add(after)
            params["after"] = after
        raise Unavailable("The labels party's list of releases does not end; ask for those since a later day.")

    def envelope(self, release: str) -> bytes:
        """The signed manifest's bytes, unverified."""
        return self._request("GET", f"/v1/releases/{_part(release)}/manifest", MAX_ENVELOPE_BYTES)

    def answer_envelope(self, answer: str) -> bytes:
        """The signed answer's bytes, unverified."""
        return self._request("GET", f"/v1/answers/{_part(answer)}/document", MAX_ENVELOPE_BYTES)

    def receipts(self) -> list[dict[str, Any]]:
        """How far our receipts are kept there: key_id, last, digest and missing of each key. Raises Unavailable."""
        data = _json(self._request("GET", "/v1/receipts", MAX_JSON_BYTES)) or {}
        states = data.get("keys")
        if not isinstance(states, list) or not all(_receipt_state(state) for state in states):
            raise Unavailable("The labels party's answer about receipts is malformed.")
        return states

    def send_receipt(self, release: str, envelope: bytes) -> None:
        """Deliver a receipt; the same one again is harmless."""
        self._send_receipt(f"/v1/releases/{_part(release)}/receipt", envelope)

    def send_answer_receipt(self, answer: str, envelope: bytes) -> None:
        """The same of an answer."""
        self._send_receipt(f"/v1/answers/{_part(answer)}/receipt", envelope)

    def _send_receipt(self, path: str, envelope: bytes) -> None:
        headers = {"Content-Type": "application/json"}
        self._request("POST", path, MAX_JSON_BYTES, content=envelope, headers=headers)

    def download(self, release: str, entry: FileEntry, target: Path, received: Bytes = lambda _n: None) -> None:
        """Stream a file of a release into `target`, continuing after interruptions. Raises Unavailable, NotFound."""
        path = f"/v1/releases/{_part(release)}/files/{_part(entry.name)}"
        with target.open("wb") as file:
            for pause in self._attempts():
                have = file.tell()
                try:
                    done = self._stream(path, entry, file, have, received)
                except httpx.TransportError:
                    done = False
                if done:
                    return
                self._sleep(pause)
        raise Unavailable(f"The download of '{entry.name}' broke off {ATTEMPTS} times; try again later.")

    def _stream(self, path: str, entry: FileEntry, file: Any, have: int, received: Bytes) -> bool:
        headers = PLAIN | ({"Range": f"bytes={have}-"} if have else {})
        with self._http.stream("GET", path, headers=headers) as answer:
            if answer.status_code in RETRIED:
                return False
            if answer.status_code not in (200, 206):
                raise refused(answer)
            _refuse_encoding(answer)
            if have and answer.status_code == 200:  # the server sends all of it again
                file.seek(0)
                file.truncate()
                have = 0
            # as it arrives: a fixed chunk size would lose what is buffered when the connection breaks
            for chunk in answer.iter_bytes():
                have += len(chunk)
                if have > entry.bytes:
                    raise Unavailable(f"The labels party sent more bytes of '{entry.name}' than its manifest states.")
                file.write(chunk)
                received(have)
        return have == entry.bytes

    def send_ids(self, batch: str, parquet: Path) -> dict[str, Any]:
        """Declare the example ids of an open batch: a Parquet file with the one column example_id."""
        body, key = parquet.read_bytes(), secrets.token_hex(16)
        headers = {"Content-Type": PARQUET, "Idempotency-Key": key}
        path = f"/v1/batches/{_part(batch)}/examples"
        answer = _json(self._request("PUT", path, MAX_JSON_BYTES, content=body, headers=headers)) or {}
        # what we know of and nothing else: the caller is shown it, and anybody may have answered
        known: dict[str, Any] = {}
        if isinstance(answer.get("batch"), str):
            known["batch"] = _printable(answer["batch"])
        if type(answer.get("examples")) is int:
            known["examples"] = answer["examples"]
        return known

    def calibration_allowance(self, batch: str) -> None:
        """Whether we may ask for calibrations of a batch at all. Raises NotFound."""
        self._request("GET", f"/v1/batches/{_part(batch)}/calibration-allowance", MAX_JSON_BYTES)

    def ask_calibration(
        self, batch: str, scores: bytes, query: dict[str, Any], sent: Bytes = lambda _n: None
    ) -> dict[str, str]:
        """`answer` (its id) and `state` of a calibration from `scores`, an Arrow stream; the batch is charged.

        The same scores and query again, also by another process, get the same calibration at no further charge.
        """
        path = f"/v1/batches/{_part(batch)}/calibrations?{urlencode(query, doseq=True)}"
        key = hashlib.sha256(path.encode() + b"\0" + scores).hexdigest()
        headers = {"Content-Type": ARROW, "Idempotency-Key": key, "Content-Length": str(len(scores))}
        data = _json(self._request("POST", path, MAX_JSON_BYTES, headers, content=_Pieces(scores, sent))) or {}
        answer, state = data.get("id"), data.get("state")
        if not (isinstance(answer, str) and _MEMBERS["id"].fullmatch(answer) and isinstance(state, str)):
            raise Unavailable("The labels party's answer names no calibration; check that the URL is its service's.")
        return {"answer": answer, "state": _printable(state)}

    def _request(
        self, method: str, path: str, limit: int, headers: dict[str, str] | None = None, **parts: Any
    ) -> bytes:
        """The body of a successful answer of at most `limit` bytes; it is dropped as soon as it is longer."""
        error: LabelDPError = Unavailable(
            f"The labels party did not answer in {ATTEMPTS} attempts; check its URL and that it runs."
        )
        for pause in self._attempts():
            try:
                with self._http.stream(method, path, headers=PLAIN | (headers or {}), **parts) as answer:
                    if answer.is_success:
                        return _body(answer, limit)
                    if answer.status_code not in RETRIED:
                        refusal = refused(answer)
                        if not isinstance(refusal, IdempotencyInFlight):
                            raise refusal
                        error = refusal
            except httpx.TransportError:
                pass
            self._sleep(pause)
        raise error

    @staticmethod
    def _attempts() -> Iterator[float]:
        """The pause after each attempt, in seconds."""
        for attempt in range(ATTEMPTS):
            yield min(0.2 * 2**attempt, 5.0) * random.uniform(0.5, 1.0)  # noqa: S311 - spreads callers out


@dataclass(frozen=True)
class _Pieces:
    """A body in pieces, from its beginning at every attempt; `sent` is told how many bytes went."""

    data: bytes
    sent: Bytes

    def __iter__(self) -> Iterator[bytes]:
        for start in range(0, len(self.data), PIECE):
            yield self.data[start : start + PIECE]
            self.sent(min(start + PIECE, len(self.data)))


def _part(text: str) -> str:
    """`text` as one segment of a path. Raises InvalidInput for dots, which would leave the path."""
    if text in ("", ".", ".."):
        raise InvalidInput("The id of a release, an answer or a batch is missing or not one.")
    return quote(text, safe="")


def _refuse_encoding(answer: httpx.Response) -> None:
    """We ask for the bytes as they are; packed ones could unpack to anything. Raises Unavailable."""
    if answer.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
        raise Unavailable(
            "The labels party sent an encoded answer that nobody asked for; switch compression off there."
        )


def _body(answer: httpx.Response, limit: int) -> bytes:
    """The body of a streamed answer. Raises Unavailable beyond `limit` bytes."""
    _refuse_encoding(answer)
    data = bytearray()
    for chunk in answer.iter_bytes():
        data += chunk
        if len(data) > limit:
            raise Unavailable(f"The labels party's answer is larger than the {limit} bytes that it can be.")
    return bytes(data)


def _json(data: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text[: 4 * MAX_DETAIL])[:MAX_DETAIL]


def refused(answer: httpx.Response) -> LabelDPError:
    """The labels party's refusal as ours: its problem's detail, short and printable, under a type of like meaning."""
    detail = f"status {answer.status_code}"
    try:
        body = _json(_body(answer, MAX_PROBLEM_BYTES))
    except (Unavailable, httpx.TransportError):
        body = None
    if body is not None and isinstance(body.get("detail"), str):
        detail = _printable(body["detail"])
    if body is not None and body.get("code") == IdempotencyInFlight.code:
        return IdempotencyInFlight(f"The labels party answered: {detail}")
    kinds: dict[int, type[LabelDPError]] = {401: Unauthenticated, 404: NotFound, 409: Conflict, 422: InvalidInput}
    return kinds.get(answer.status_code, Refusal)(f"The labels party answered: {detail}")
