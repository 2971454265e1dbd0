"""An advertiser's backend in Python: the labels party's REST interface with chunks, retries and typed errors."""

from __future__ import annotations

import io
import random
import secrets
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self

import httpx

from shared import errors
from shared.errors import RemoteProblem

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LabelsPartyClient", "RemoteProblem"]

PARQUET = "application/vnd.apache.parquet"
RETRIED = frozenset({429, 502, 503, 504})


class LabelsPartyClient:
    """`LabelsPartyClient("http://127.0.0.1:8001", api_key)`; a context manager. Every call is safe to repeat.

    Methods return the JSON of the reply (see the service's /docs) and raise RemoteProblem for a refusal, Unavailable
    if the service cannot be reached.
    """

    def __init__(
        self, url: str, api_key: str, *, chunk_rows: int = 1_000_000, retries: int = 5, http: httpx.Client | None = None
    ) -> None:
        self.chunk_rows, self.retries = chunk_rows, retries
        self._http = http or httpx.Client(timeout=httpx.Timeout(60, read=300))
        self._base = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {api_key}"}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    # --- the advertiser's day -----------------------------------------------------------------------------

    def create_population(
        self, name: str, label: str, domain: str | list[float], lifetime_epsilon: str, **rules: Any
    ) -> dict[str, Any]:
        """rules: out_of_domain, missing_label, audiences."""
        body = {"name": name, "label": label, "domain": domain, "lifetime_epsilon": lifetime_epsilon} | rules
        return self._json("POST", "/v1/populations", json=body)

    def open_batch(self, population: str, presence: str = "id-list") -> dict[str, Any]:
        return self._json("POST", f"/v1/populations/{population}/batches", json={"presence": presence})

    def put_examples(self, batch: str, examples: pa.Table) -> dict[str, Any]:
        """A table with column `example_id`, all of the batch's ids at once."""
        return self._json("PUT", f"/v1/batches/{batch}/examples", content=_parquet(examples), content_type=PARQUET)

    def add_labels(self, batch: str, labels: pa.Table, progress: Callable[[int], None] | None = None) -> int:
        """A table with columns `example_id` and `label`, sent in chunks; returns the number of accepted labels."""
        sent = 0
        for chunk in self._chunks(labels):
            sent += int(
                self._json("POST", f"/v1/batches/{batch}/labels", content=_parquet(chunk), content_type=PARQUET)[
                    "accepted"
                ]
            )
            if progress is not None:
                progress(sent)
        return sent

    def seal(self, batch: str) -> dict[str, Any]:
        return self._json("POST", f"/v1/batches/{batch}/seal")

    def release(self, batch: str, epsilon: str, **options: Any) -> dict[str, Any]:
        """options: mechanism, loss, prior, prior_epsilon, prior_method, clip, additional_release."""
        return self._json("POST", f"/v1/batches/{batch}/releases", json={"epsilon": epsilon} | options)

    def wait(self, release: str, timeout: float = 600.0) -> dict[str, Any]:
        """The release once it is published. Raises Conflict if it failed, Unavailable after `timeout` seconds."""
        end = time.monotonic() + timeout
        pause = 0.05
        while True:
            state = self._json("GET", f"/v1/releases/{release}")
            if state["state"] == "published":
                return state
            if state["state"] == "failed":
                raise errors.Conflict(f"Release '{release}' failed: {(state['problem'] or {}).get('detail', '')}")
            if time.monotonic() > end:
                raise errors.Unavailable(f"Release '{release}' was not published within {timeout:g} seconds.")
            time.sleep(pause)
            pause = min(1.0, pause * 1.5)

    def plan(self, population: str, epsilon: str, n: int, loss: str = "squared") -> dict[str, Any]:
        return self._json(
            "GET", f"/v1/populations/{population}/plan", params={"epsilon": epsilon, "n": n, "loss": loss}
        )

    def budget(self, population: str) -> dict[str, Any]:
        return self._json("GET", f"/v1/populations/{population}/budget")

    def audit_export(self) -> bytes:
        """The signed export of the audit store."""
        return self._send("GET", "/v1/audit/export").content

    # --- parts --------------------------------------------------------------------------------------------

    def _chunks(self, table: pa.Table) -> Iterator[pa.Table]:
        for start in range(0, max(table.num_rows, 1), self.chunk_rows):
            yield table.slice(start, self.chunk_rows)

    def _json(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        data: dict[str, Any] = self._send(method, path, **options).json()
        return data

    def _send(self, method: str, path: str, *, content_type: str | None = None, **options: Any) -> httpx.Response:
        headers = dict(self._headers)
        if content_type is not None:
            headers["Content-Type"] = content_type
        if method != "GET":
            headers["Idempotency-Key"] = secrets.token_hex(16)  # the same for every try, so a lost reply costs nothing
        for attempt in range(self.retries + 1):
            try:
                response = self._http.request(method, self._base + path, headers=headers, **options)
            except httpx.TransportError as error:
                failure = f"{type(error).__name__}"
            else:
                if response.status_code not in RETRIED:
                    return _checked(response)
                failure = f"status {response.status_code}"
            if attempt < self.retries:
                time.sleep(min(10.0, 0.2 * 2**attempt) * random.uniform(0.5, 1.0))  # noqa: S311 - spreads retries
        raise errors.Unavailable(f"The labels party at {self._base} does not answer ({failure}); try again later.")


def _checked(response: httpx.Response) -> httpx.Response:
    if response.is_success:
        return response
    try:
        body = response.json()
    except ValueError:
        body = {"detail": f"The service answered with status {response.status_code}."}
    raise RemoteProblem.from_body(response.status_code, body)


def _parquet(table: pa.Table) -> bytes:
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()
