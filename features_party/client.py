"""A publisher's backend in Python: the features party's REST interface with retries and typed errors.

`FeaturesPartyClient` and `AsyncFeaturesPartyClient` have the same methods; the latter's are awaited. Tables may be
Arrow tables, pandas or polars frames. Calls that change something are not repeated once an answer may have been lost,
except those that are safe to repeat (messages).
"""

from __future__ import annotations

import asyncio
import io
import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Self

import httpx

from shared import errors
from shared.errors import RemoteProblem

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["AsyncFeaturesPartyClient", "FeaturesPartyClient", "RemoteProblem"]

PARQUET = "application/vnd.apache.parquet"
RETRIED = frozenset({429, 502, 503, 504})
REFUSED_UNSEEN = frozenset({429})  # after the others a call may have had its effect
RETRIES = 5
TIMEOUT = httpx.Timeout(60.0, read=300.0)
Call = tuple[str, str, dict[str, Any]]


class _Calls:
    """The requests as data, shared by both clients."""

    @staticmethod
    def upload_table(table: Any, id_column: str, name: str = "upload") -> Call:
        query = {"id_column": id_column, "name": name}
        return "POST", "/v1/feature-tables", {"params": query, "content": _parquet(table), "headers": _typed(PARQUET)}

    @staticmethod
    def use_file(path: str, id_column: str) -> Call:
        return "POST", "/v1/feature-tables", {"json": {"path": path, "id_column": id_column}}

    @staticmethod
    def send_ids(table_id: str, url: str, batch: str, api_key: str | None = None) -> Call:
        body = {"url": url, "batch": batch, "api_key": api_key}
        return "POST", f"/v1/feature-tables/{table_id}/id-list", {"json": body}

    @staticmethod
    def pull(url: str, release: str, api_key: str | None = None) -> Call:
        return "POST", "/v1/messages", {"json": {"url": url, "release": release, "api_key": api_key}}

    @staticmethod
    def upload_message(files: dict[str, bytes]) -> Call:
        parts = [("file", (name, data, "application/octet-stream")) for name, data in files.items()]
        return "POST", "/v1/messages", {"files": parts}

    @staticmethod
    def train(table_id: str, messages: list[str], options: dict[str, Any]) -> Call:
        return "POST", "/v1/trainings", {"json": {"feature_table": table_id, "messages": messages, **options}}

    @staticmethod
    def predict(model: str, rows: list[dict[str, Any]]) -> Call:
        return "POST", f"/v1/models/{model}/predict", {"json": {"rows": rows}}


class FeaturesPartyClient:
    """`FeaturesPartyClient("http://127.0.0.1:8002", api_key)`; a context manager.

    Methods return the JSON of the reply (see the service's /docs) and raise RemoteProblem for a refusal, Unavailable
    if the service cannot be reached.
    """

    def __init__(self, url: str, api_key: str, *, http: httpx.Client | None = None) -> None:
        self._http = http or httpx.Client(timeout=TIMEOUT)
        self._base, self._headers = url.rstrip("/"), {"Authorization": f"Bearer {api_key}"}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def upload_table(self, table: pa.Table | Any, id_column: str, name: str = "upload") -> dict[str, Any]:
        """Store a feature table; `id` of the answer names it."""
        return self._json(_Calls.upload_table(table, id_column, name))

    def use_file(self, path: str, id_column: str) -> dict[str, Any]:
        """Use a file below the service's data folder."""
        return self._json(_Calls.use_file(path, id_column))

    def send_ids(self, table_id: str, url: str, batch: str, api_key: str | None = None) -> dict[str, Any]:
        """Declare the table's ids as the examples of a labels party's open batch."""
        return self._json(_Calls.send_ids(table_id, url, batch, api_key))

    def pull(self, url: str, release: str, api_key: str | None = None) -> dict[str, Any]:
        """Let the service fetch, verify and account for a release."""
        return self._json(_Calls.pull(url, release, api_key), again=True)

    def upload_message(self, files: dict[str, bytes]) -> dict[str, Any]:
        """A message by file name and bytes: the signed manifest (….dsse.json) and its files."""
        return self._json(_Calls.upload_message(files), again=True)

    def messages(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._send(("GET", "/v1/messages", {}), True).json()
        return found

    def train(self, table_id: str, messages: list[str], **options: Any) -> dict[str, Any]:
        """options: model, loss, correction, categorical, exclude."""
        return self._json(_Calls.train(table_id, messages, options))

    def training(self, training: str) -> dict[str, Any]:
        return self._json(("GET", f"/v1/trainings/{training}", {}), again=True)

    def watch(self, training: str) -> Iterator[dict[str, Any]]:
        """The server-sent events of a training, until its end."""
        path = f"{self._base}/v1/trainings/{training}/events"
        with self._http.stream("GET", path, headers=self._headers) as answer:
            if not answer.is_success:
                answer.read()
                raise _problem(answer)
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    yield json.loads(line.removeprefix("data: "))

    def wait(self, training: str, timeout: float = 3600.0) -> str:
        """The model id once training succeeded. Raises Conflict if it failed, Unavailable after `timeout` seconds."""
        end = time.monotonic() + timeout
        while (model := _ended(self.training(training))) is None:
            if time.monotonic() > end:
                raise errors.Unavailable(f"Training '{training}' did not end within {timeout:g} seconds.")
            time.sleep(0.25)
        return model

    def model(self, model: str) -> dict[str, Any]:
        """The model's card."""
        return self._json(("GET", f"/v1/models/{model}", {}), again=True)

    def predict(self, model: str, rows: list[dict[str, Any]]) -> list[float]:
        found: list[float] = self._json(_Calls.predict(model, rows), again=True)["predictions"]
        return found

    def audit_export(self) -> bytes:
        """The signed export of the audit store."""
        return self._send(("GET", "/v1/audit/export", {}), True).content

    def _json(self, call: Call, again: bool = False) -> dict[str, Any]:
        data: dict[str, Any] = self._send(call, again).json()
        return data

    def _send(self, call: Call, again: bool) -> httpx.Response:
        method, path, parts = call
        headers = {**self._headers, **parts.pop("headers", {})}
        for pause in _pauses():
            try:
                answer = self._http.request(method, self._base + path, headers=headers, **parts)
            except httpx.TransportError as error:
                if not (again or isinstance(error, httpx.ConnectError)):
                    raise errors.Unavailable(
                        "The connection broke before the answer; look before you repeat."
                    ) from None
            else:
                if answer.status_code not in (RETRIED if again else REFUSED_UNSEEN):
                    return _checked(answer)
            time.sleep(pause)
        raise errors.Unavailable(f"The features party at {self._base} does not answer; try again later.")


class AsyncFeaturesPartyClient:
    """As `FeaturesPartyClient`, with methods to await."""

    def __init__(self, url: str, api_key: str, *, http: httpx.AsyncClient | None = None) -> None:
        self._http = http or httpx.AsyncClient(timeout=TIMEOUT)
        self._base, self._headers = url.rstrip("/"), {"Authorization": f"Bearer {api_key}"}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def upload_table(self, table: pa.Table | Any, id_column: str, name: str = "upload") -> dict[str, Any]:
        return await self._json(_Calls.upload_table(table, id_column, name))

    async def use_file(self, path: str, id_column: str) -> dict[str, Any]:
        return await self._json(_Calls.use_file(path, id_column))

    async def send_ids(self, table_id: str, url: str, batch: str, api_key: str | None = None) -> dict[str, Any]:
        return await self._json(_Calls.send_ids(table_id, url, batch, api_key))

    async def pull(self, url: str, release: str, api_key: str | None = None) -> dict[str, Any]:
        return await self._json(_Calls.pull(url, release, api_key), again=True)

    async def upload_message(self, files: dict[str, bytes]) -> dict[str, Any]:
        return await self._json(_Calls.upload_message(files), again=True)

    async def messages(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self._send(("GET", "/v1/messages", {}), True)).json()
        return found

    async def train(self, table_id: str, messages: list[str], **options: Any) -> dict[str, Any]:
        return await self._json(_Calls.train(table_id, messages, options))

    async def training(self, training: str) -> dict[str, Any]:
        return await self._json(("GET", f"/v1/trainings/{training}", {}), again=True)

    async def watch(self, training: str) -> AsyncIterator[dict[str, Any]]:
        path = f"{self._base}/v1/trainings/{training}/events"
        async with self._http.stream("GET", path, headers=self._headers) as answer:
            if not answer.is_success:
                await answer.aread()
                raise _problem(answer)
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    yield json.loads(line.removeprefix("data: "))

    async def wait(self, training: str, timeout: float = 3600.0) -> str:
        end = time.monotonic() + timeout
        while (model := _ended(await self.training(training))) is None:
            if time.monotonic() > end:
                raise errors.Unavailable(f"Training '{training}' did not end within {timeout:g} seconds.")
            await asyncio.sleep(0.25)
        return model

    async def model(self, model: str) -> dict[str, Any]:
        return await self._json(("GET", f"/v1/models/{model}", {}), again=True)

    async def predict(self, model: str, rows: list[dict[str, Any]]) -> list[float]:
        found: list[float] = (await self._json(_Calls.predict(model, rows), again=True))["predictions"]
        return found

    async def audit_export(self) -> bytes:
        return (await self._send(("GET", "/v1/audit/export", {}), True)).content

    async def _json(self, call: Call, again: bool = False) -> dict[str, Any]:
        data: dict[str, Any] = (await self._send(call, again)).json()
        return data

    async def _send(self, call: Call, again: bool) -> httpx.Response:
        method, path, parts = call
        headers = {**self._headers, **parts.pop("headers", {})}
        for pause in _pauses():
            try:
                answer = await self._http.request(method, self._base + path, headers=headers, **parts)
            except httpx.TransportError as error:
                if not (again or isinstance(error, httpx.ConnectError)):
                    raise errors.Unavailable(
                        "The connection broke before the answer; look before you repeat."
                    ) from None
            else:
                if answer.status_code not in (RETRIED if again else REFUSED_UNSEEN):
                    return _checked(answer)
            await asyncio.sleep(pause)
        raise errors.Unavailable(f"The features party at {self._base} does not answer; try again later.")


def _pauses() -> Iterator[float]:
    for attempt in range(RETRIES + 1):
        yield 0.0 if attempt == RETRIES else min(10.0, 0.2 * 2**attempt)


def _typed(content_type: str) -> dict[str, str]:
    return {"Content-Type": content_type}


def _ended(training: dict[str, Any]) -> str | None:
    if training["state"] == "failed":
        raise errors.Conflict(f"Training '{training['id']}' failed: {(training['problem'] or {}).get('detail', '')}")
    return str(training["model"]) if training["state"] == "succeeded" else None


def _checked(answer: httpx.Response) -> httpx.Response:
    if not answer.is_success:
        raise _problem(answer)
    return answer


def _problem(answer: httpx.Response) -> RemoteProblem:
    try:
        body = answer.json()
    except ValueError:
        body = {}
    return RemoteProblem.from_body(answer.status_code, body)


def _parquet(table: Any) -> bytes:
    """An Arrow table, or a pandas or polars frame, as Parquet bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not isinstance(table, pa.Table):
        module = type(table).__module__.split(".")[0]
        if module == "pandas":
            table = pa.Table.from_pandas(table, preserve_index=False)
        elif hasattr(table, "to_arrow"):
            table = table.to_arrow()
        else:
            raise errors.InvalidTable("A table is an Arrow table, or a pandas or polars frame.")
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()
