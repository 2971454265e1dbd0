"""The client of the labels party: the few calls of its REST interface that a features party makes.

Connection failures, 429 and 5xx answers are retried with growing pauses; a download that breaks off is continued
with `Range`. What comes back is only bytes: `features_party.pull` verifies them.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from features_party.labels_url import labels_url
from shared.errors import Conflict, InvalidInput, LabelDPError, NotFound, Refusal, Unauthenticated, Unavailable
from shared.message.bundle import MAX_ENVELOPE_BYTES
from shared.message.manifest import FileEntry

PARQUET = "application/vnd.apache.parquet"
ATTEMPTS = 6
RETRIED = {429, 500, 502, 503, 504}
TIMEOUT = httpx.Timeout(30.0, read=120.0)

Sleep = Callable[[float], None]
Bytes = Callable[[int], None]


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
        answer = self._request("GET", f"/v1/releases/{quote(release, safe='')}")
        try:
            data = answer.json()
        except ValueError:
            data = None
        if not isinstance(data, dict):
            raise Unavailable("The labels party's answer is not JSON; check that the URL is the one of its service.")
        return data

    def envelope(self, release: str) -> bytes:
        """The signed manifest's bytes, unverified."""
        data = self._request("GET", f"/v1/releases/{quote(release, safe='')}/manifest").content
        if len(data) > MAX_ENVELOPE_BYTES:
            raise Unavailable("The labels party sent more than a manifest can be.")
        return data

    def download(self, release: str, entry: FileEntry, target: Path, received: Bytes = lambda _n: None) -> None:
        """Stream a file of a release into `target`, continuing after interruptions. Raises Unavailable, NotFound."""
        path = f"/v1/releases/{quote(release, safe='')}/files/{quote(entry.name, safe='')}"
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
        headers = (
            {"Range": f"bytes={have}-", "Accept-Encoding": "identity"} if have else {"Accept-Encoding": "identity"}
        )
        with self._http.stream("GET", path, headers=headers) as answer:
            if answer.status_code in RETRIED:
                return False
            if answer.status_code not in (200, 206):
                answer.read()
                raise refused(answer)
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
        path = f"/v1/batches/{quote(batch, safe='')}/examples"
        body, key = parquet.read_bytes(), secrets.token_hex(16)
        answer = self._request("PUT", path, content=body, headers={"Content-Type": PARQUET, "Idempotency-Key": key})
        try:
            data = answer.json()
        except ValueError:
            data = {}
        return data if isinstance(data, dict) else {}

    def _request(self, method: str, path: str, **parts: Any) -> httpx.Response:
        for pause in self._attempts():
            try:
                answer = self._http.request(method, path, **parts)
            except httpx.TransportError:
                self._sleep(pause)
                continue
            if answer.status_code not in RETRIED:
                if not answer.is_success:
                    raise refused(answer)
                return answer
            self._sleep(pause)
        raise Unavailable(f"The labels party did not answer in {ATTEMPTS} attempts; check its URL and that it runs.")

    @staticmethod
    def _attempts() -> Iterator[float]:
        """The pause after each attempt, in seconds."""
        for attempt in range(ATTEMPTS):
            yield min(0.2 * 2**attempt, 5.0) * random.uniform(0.5, 1.0)  # noqa: S311 - spreads callers out


def refused(answer: httpx.Response) -> LabelDPError:
    """The labels party's refusal as ours: its problem's detail, bounded, under a type of the same meaning."""
    detail = f"status {answer.status_code}"
    try:
        body = answer.json()
        if isinstance(body, dict) and isinstance(body.get("detail"), str):
            detail = body["detail"][:500]
    except ValueError:
        pass
    kinds: dict[int, type[LabelDPError]] = {401: Unauthenticated, 404: NotFound, 409: Conflict, 422: InvalidInput}
    return kinds.get(answer.status_code, Refusal)(f"The labels party answered: {detail}")
