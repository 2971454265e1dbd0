"""The features party's REST interface as conversations, written once for the blocking and the awaited client."""

from __future__ import annotations

import io
import json
import tarfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote

import httpx

from shared import errors
from shared.frames import as_table
from shared.service.remote import Call, Conversation, ask

if TYPE_CHECKING:
    import pyarrow as pa

    from shared.frames import Frame

Json = dict[str, Any]
PARQUET, TAR = "application/vnd.apache.parquet", "application/x-tar"
PAGE = 1000
POLL_SECONDS = 0.25


def path(*parts: str) -> str:
    """A path below /v1, its parts quoted."""
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def _bytes(*parts: str, **params: Any) -> Conversation[bytes]:
    answer: httpx.Response = yield Call("GET", path(*parts), params=params)
    return answer.content


def _every(*parts: str, limit: int | None, **params: Any) -> Conversation[list[Json]]:
    """The entries of all pages, at most `limit`."""
    found: list[Json] = []
    query: dict[str, Any] = params | {"limit": PAGE if limit is None else max(1, min(limit, PAGE))}
    while True:
        answer: httpx.Response = yield Call("GET", path(*parts), params=query)
        found += answer.json()
        link = answer.links.get("next", {}).get("url")
        if link is None or (limit is not None and len(found) >= limit):
            return found[:limit]
        query = query | {name: values[-1] for name, values in parse_qs(link.partition("?")[2]).items()}


# --- feature tables and messages ---------------------------------------------------------------------------


def upload_table(table: Frame, id_column: str, name: str = "upload") -> Conversation[Json]:
    """Store a feature table; `id` of the answer names it."""
    query = {"id_column": id_column, "name": name}
    return ask(Call("POST", path("feature-tables"), content=_parquet(table), content_type=PARQUET, params=query))


def use_file(file: str, id_column: str) -> Conversation[Json]:
    """Use a file below the service's data folder."""
    return ask(Call("POST", path("feature-tables"), body={"path": file, "id_column": id_column}))


def tables(limit: int | None = None) -> Conversation[list[Json]]:
    """Stored feature tables, oldest first."""
    return _every("feature-tables", limit=limit)


def table(table_id: str) -> Conversation[Json]:
    """Name, id column, rows and columns."""
    return ask(Call("GET", path("feature-tables", table_id)))


def delete_table(table_id: str) -> Conversation[None]:
    """Remove a table that no training needs."""
    yield Call("DELETE", path("feature-tables", table_id))


def send_ids(table_id: str, url: str, batch: str, api_key: str | None = None) -> Conversation[Json]:
    """Declare the table's ids as the examples of a labels party's open batch."""
    body = {"url": url, "batch": batch, "api_key": api_key}
    return ask(Call("POST", path("feature-tables", table_id, "id-list"), body=body))


def pull(url: str, release: str, api_key: str | None = None) -> Conversation[Json]:
    """Let the service fetch, verify and account for a release."""
    return ask(Call("POST", path("messages"), body={"url": url, "release": release, "api_key": api_key}))


def upload_message(files: dict[str, bytes]) -> Conversation[Json]:
    """A message by file name and bytes: the signed manifest (….dsse.json) and its files."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return ask(Call("POST", path("messages"), content=sink.getvalue(), content_type=TAR))


def messages(limit: int | None = None) -> Conversation[list[Json]]:
    """Accepted messages and the ε of each, oldest first."""
    return _every("messages", limit=limit)


def message(release: str) -> Conversation[Json]:
    """One accepted message, by its release id or its digest."""
    return ask(Call("GET", path("messages", release)))


# --- answers -----------------------------------------------------------------------------------------------


def pull_answer(url: str, answer: str, api_key: str | None = None, wait: float = 0.0) -> Conversation[Json]:
    """Let the service fetch, verify, account for and keep an answer of a labels party; it waits up to `wait` seconds
    (30 at most) for its publication."""
    body = {"url": url, "answer": answer, "api_key": api_key} | ({"wait": wait} if wait else {})
    return ask(Call("POST", path("answers"), body=body))


def upload_answer(envelope: bytes) -> Conversation[Json]:
    """The same with a signed document that came another way."""
    return ask(Call("POST", path("answers"), body=json.loads(envelope)))


def answers(limit: int | None = None) -> Conversation[list[Json]]:
    """Accepted answers and the ε of each, oldest first."""
    return _every("answers", limit=limit)


def answer(answer_id: str) -> Conversation[Json]:
    """One accepted answer with its result, by its id or the digest of its document."""
    return ask(Call("GET", path("answers", answer_id)))


def answer_document(answer_id: str) -> Conversation[bytes]:
    """The signed document as it came."""
    return _bytes("answers", answer_id, "document")


# --- trainings ---------------------------------------------------------------------------------------------


def train(table_id: str, messages: list[str], **options: Any) -> Conversation[Json]:
    """Put a training in line. options: model, loss, correction, categorical, exclude, name, note."""
    return ask(Call("POST", path("trainings"), body={"feature_table": table_id, "messages": messages, **options}))


def training(training_id: str) -> Conversation[Json]:
    """State, progress, request, and the model or the problem."""
    return ask(Call("GET", path("trainings", training_id)))


def trainings(state: str | None = None, newest: bool = False, limit: int | None = None) -> Conversation[list[Json]]:
    """Trainings, perhaps of one state, oldest or newest first."""
    return _every("trainings", limit=limit, state=state, order="newest" if newest else "oldest")


def cancel(training_id: str) -> Conversation[Json]:
    """End a training within seconds; nothing of it is kept."""
    return ask(Call("POST", path("trainings", training_id, "cancel")))


def wait(training_id: str, timeout: float = 3600.0) -> Conversation[str]:
    """The model id once training succeeded. Raises Conflict if it failed or was cancelled, Unavailable after `timeout`
    seconds."""
    end = time.monotonic() + timeout
    while (model_id := ended((yield from training(training_id)))) is None:
        if time.monotonic() > end:
            raise errors.Unavailable(f"Training '{training_id}' did not end within {timeout:g} seconds.")
        yield POLL_SECONDS
    return model_id


def ended(training: Json) -> str | None:
    """The model of a finished training, None while it is not. Raises Conflict where there will be none."""
    if training["state"] == "failed":
        raise errors.Conflict(f"Training '{training['id']}' failed: {(training['problem'] or {}).get('detail', '')}")
    if training["state"] == "cancelled":
        raise errors.Conflict(f"Training '{training['id']}' was cancelled.")
    return str(training["model"]) if training["state"] == "succeeded" else None


@dataclass
class EventReader:
    """Server-sent events from their lines, across reconnections. `last` is the id to resume behind."""

    training_id: str
    last: str | None = None
    done: bool = False
    _data: list[str] = field(default_factory=list)
    _id: str | None = None

    @property
    def path(self) -> str:
        return path("trainings", self.training_id, "events")

    @property
    def headers(self) -> dict[str, str]:
        resume = {"Last-Event-ID": self.last} if self.last is not None else {}
        return {"Accept": "text/event-stream"} | resume

    def begin(self) -> None:
        """A new connection: what the old one had not finished is sent again."""
        self._data, self._id = [], None

    def line(self, text: str) -> Iterator[Json]:
        """The event that this line ends, if it ends one."""
        name, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "id":
            self._id = value
        elif not text and self._data:
            event: Json = json.loads("\n".join(self._data))
            self.last = self._id if self._id is not None else self.last
            self.done = event["state"] in ("succeeded", "failed", "cancelled")
            self.begin()
            yield event


# --- models ------------------------------------------------------------------------------------------------


def models(training: str | None = None, limit: int | None = None) -> Conversation[list[Json]]:
    """Models, oldest first; perhaps that of one training only."""
    return _every("models", limit=limit, training=training)


def model(model_id: str) -> Conversation[Json]:
    """`card` of the answer is the model's card."""
    return ask(Call("GET", path("models", model_id)))


def card_text(model_id: str) -> Conversation[str]:
    """The model's card as Markdown."""
    return (yield from _bytes("models", model_id, "card.md")).decode("utf-8")


def model_schema(model_id: str, categories: int = 1000) -> Conversation[Json]:
    """What a row for `predict` looks like."""
    return ask(Call("GET", path("models", model_id, "schema"), params={"categories": categories}))


def compare(*model_ids: str) -> Conversation[Json]:
    """Two or more models of one label and domain, side by side."""
    return ask(Call("GET", path("models", "compare"), params={"model": list(model_ids)}))


def export_model(model_id: str, format: str) -> Conversation[bytes]:
    """The model for another stack: `xgboost` (a zip) or `onnx`."""
    return _bytes("models", model_id, "export", format=format)


def delete_model(model_id: str) -> Conversation[None]:
    """Remove a model and its files."""
    yield Call("DELETE", path("models", model_id))


def ask_calibration(
    model_id: str, table_id: str, url: str, batch: str, epsilon: str, api_key: str | None = None, **options: Any
) -> Conversation[Json]:
    """Send a model's predictions for a table to a labels party; `answer` of the reply names the calibration, charged,
    for `pull_answer`. options: loss, shape, options, numbers, additional_release. Charged once, however often sent."""
    asked = {"feature_table": table_id, "url": url, "batch": batch, "epsilon": epsilon, "api_key": api_key}
    return ask(Call("POST", path("models", model_id, "ask-calibration"), body=asked | options))


def calibrate(model_id: str, calibration: bytes | str, *, interpolate: bool = False) -> Conversation[Json]:
    """A further model whose predictions go through a labels party's signed map (its document, or the id of an accepted
    answer); the reply names it."""
    params = {"interpolate": "true"} if interpolate else {}
    body = {"answer": calibration} if isinstance(calibration, str) else json.loads(calibration)
    return ask(Call("POST", path("models", model_id, "calibrations"), body=body, params=params))


def predict(model_id: str, rows: Iterable[Json] | Frame, **options: Any) -> Conversation[list[float]]:
    """One prediction per row. `rows` are dictionaries or a table; options: unknown_categories, unexpected_columns."""
    return (yield from predict_report(model_id, rows, **options))["predictions"]  # type: ignore[no-any-return]  # JSON


def predict_report(model_id: str, rows: Iterable[Json] | Frame, **options: Any) -> Conversation[Json]:
    """Predictions with the counts of unknown categories and missing values by column."""
    given = rows if isinstance(rows, list) else _rows(rows)
    return ask(Call("POST", path("models", model_id, "predict"), body={"rows": given, **options}))


# --- the privacy officer -----------------------------------------------------------------------------------


def audit_events(after: int = 0, limit: int = 200) -> Conversation[list[Json]]:
    """Audit events behind a sequence number, each with its exact ε split."""
    return ask(Call("GET", path("audit", "events"), params={"after": after, "limit": limit}))


def audit_export() -> Conversation[bytes]:
    """The signed export of the audit store."""
    return _bytes("audit", "export")


def _parquet(frame: Frame) -> bytes:
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(as_table(frame), sink, compression="zstd")
    return sink.getvalue()


def _rows(frame: Any) -> list[Json]:
    """A table, or any iterable of dictionaries, as rows of JSON: dates and times as ISO 8601, NaN as null."""
    rows: list[Json]
    if hasattr(frame, "to_pylist") or not isinstance(frame, Iterable) or hasattr(frame, "columns"):
        arrow: pa.Table = as_table(frame)
        rows = arrow.to_pylist()
    else:
        rows = list(frame)
    return [{name: _cell(cell) for name, cell in row.items()} for row in rows]


def _cell(cell: Any) -> Any:
    if isinstance(cell, float) and (cell != cell or cell in (float("inf"), float("-inf"))):
        return None  # missing in training too
    return cell.isoformat() if hasattr(cell, "isoformat") else cell
