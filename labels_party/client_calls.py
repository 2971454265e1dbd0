"""The labels party's REST interface as conversations, written once for the blocking and the awaited client."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from shared import errors
from shared.frames import arrow_stream, as_table, chunked, length
from shared.service.remote import Call, Conversation, ask

if TYPE_CHECKING:
    import pyarrow as pa

    from shared.frames import Frame, Frames

ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
PAGE = 1000  # rows of a listing that are asked for at a time
Told = Callable[[int, int | None], None]
Json = dict[str, Any]
Mode = Literal["insert", "upsert"]


def path(*parts: str) -> str:
    """A path below /v1; names are quoted, so that a population may be called anything."""
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def get(*parts: str, **params: Any) -> Conversation[Json]:
    return ask(Call("GET", path(*parts), params=params))


def listing(*parts: str, **params: Any) -> Conversation[list[Json]]:
    return ask(Call("GET", path(*parts), params=params))


def answers(since: str | None, population: str | None) -> Conversation[list[Json]]:
    """All pages of published answers."""
    given = {"since": since, "population": population, "limit": PAGE}
    params = {name: value for name, value in given.items() if value is not None}
    found: list[Json] = []
    while True:
        page = yield from get("answers", **params)
        found += page["answers"]
        if page["next"] is None:
            return found
        params["after"] = page["next"]


def post(*parts: str, body: Any = None) -> Conversation[Json]:
    return ask(Call("POST", path(*parts), body=body))


def patch(*parts: str, body: Any = None) -> Conversation[Json]:
    return ask(Call("PATCH", path(*parts), body=body))


def delete(*parts: str) -> Conversation[None]:
    yield Call("DELETE", path(*parts))


def create_population(name: str, rules: dict[str, Any]) -> Conversation[Json]:
    return post("populations", body={"name": name} | rules)


def open_batch(
    population: str, presence: str, seal_at: str | None, release: dict[str, Any] | None
) -> Conversation[Json]:
    planned = {"seal_at": seal_at, "release": release}
    body = {"presence": presence} | {k: v for k, v in planned.items() if v is not None}
    return post("populations", population, "batches", body=body)


def put_examples(batch: str, examples: Frame, columns: dict[str, str]) -> Conversation[Json]:
    return ask(_upload("PUT", path("batches", batch, "examples"), _named(as_table(examples), columns)))


def add_labels(
    batch: str, labels: Frames, columns: dict[str, str], mode: Mode, rows: int, told: Told
) -> Conversation[int]:
    """Sends chunk after chunk; every chunk is stored as a whole or not at all. Returns the accepted rows."""
    sent, total = 0, length(labels)
    params: dict[str, str] = {"mode": mode} if mode != "insert" else {}
    for chunk in chunked(labels, rows):
        answer = yield from ask(_upload("POST", path("batches", batch, "labels"), _named(chunk, columns), params))
        sent += int(answer["accepted"])
        told(sent, total)
    return sent


def delete_labels(batch: str, examples: Frame, columns: dict[str, str]) -> Conversation[Json]:
    return ask(_upload("DELETE", path("batches", batch, "labels"), _named(as_table(examples), columns)))


def put(*parts: str, body: Any = None) -> Conversation[Json]:
    return ask(Call("PUT", path(*parts), body=body))


def score_columns(ids: str, scores: str, second: str | None) -> dict[str, str]:
    return {"example_id": ids, "score": scores} | ({} if second is None else {"score_2": second})


def calibrate(batch: str, scores: Frame, columns: dict[str, str], options: dict[str, Any]) -> Conversation[Json]:
    """All scores in one call, so that they are charged once. A second score is named, or it would be passed over."""
    options = options | {f"{name}_column": name for name in columns if name == "score_2"}
    call = _upload("POST", path("batches", batch, "calibrations"), _named(as_table(scores), columns), options)
    return ask(call)


def wait(release: str, timeout: float, kind: str = "releases") -> Conversation[Json]:
    end, pause = time.monotonic() + timeout, 0.05
    while True:
        state: Json = yield from get(kind, release)
        if state["state"] == "published":
            return state
        if state["state"] in ("failed", "declined", "cancelled"):
            why = (state["problem"] or {}).get("detail", "")
            raise errors.Conflict(f"{kind[:-1].capitalize()} '{release}' is {state['state']}. {why}".strip())
        if time.monotonic() > end:
            waits = " It waits for approval." if state["state"] == "accepted" else ""
            raise errors.Unavailable(
                f"{kind[:-1].capitalize()} '{release}' was not published within {timeout:g} seconds.{waits}"
            )
        yield pause
        pause = min(1.0, pause * 1.5)


def put_features(batch: str, features: Frame, id_column: str) -> Conversation[Json]:
    """A table with its columns as they are, as one Parquet file."""
    import io

    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(as_table(features), sink)
    where, params = path("batches", batch, "features"), {"id_column": id_column}
    return ask(Call("PUT", where, content=sink.getvalue(), content_type=PARQUET, params=params))


def wait_predictor(predictor: str, timeout: float) -> Conversation[Json]:
    end, pause = time.monotonic() + timeout, 0.05
    while True:
        state: Json = yield from get("predictors", predictor)
        if state["state"] == "ready":
            return state
        if state["state"] != "training":
            why = (state["problem"] or {}).get("detail", "")
            raise errors.Conflict(f"Predictor '{predictor}' is {state['state']}. {why}".strip())
        if time.monotonic() > end:
            raise errors.Unavailable(f"Predictor '{predictor}' was not trained within {timeout:g} seconds.")
        yield pause
        pause = min(1.0, pause * 1.5)


def predict(predictor: str, query: dict[str, Any]) -> Conversation[bytes]:
    body = {"query": {name: _cell(value) for name, value in query.items()}}
    response = yield Call("POST", path("predictors", predictor, "predict"), body=body)
    content: bytes = response.content
    return content


def _cell(value: Any) -> Any:
    """A cell of a frame as JSON has it: numbers of numpy as Python's, NaN as null, which is missing as well."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and math.isnan(value) else value


def download(*parts: str) -> Conversation[bytes]:
    response = yield Call("GET", path(*parts))
    content: bytes = response.content
    return content


def _upload(method: str, where: str, table: pa.Table, params: dict[str, Any] | None = None) -> Call:
    return Call(method, where, content=arrow_stream(table), content_type=ARROW, params=params or {})


def _named(table: pa.Table, columns: dict[str, str]) -> pa.Table:
    """The columns `columns` (their names on the wire → in the table), in the wire's names. Raises InvalidTable."""
    import pyarrow as pa

    for column in columns.values():
        if table.column_names.count(column) != 1:
            have = ", ".join(f"'{c}'" for c in table.column_names[:20]) or "none"
            raise errors.InvalidTable(f"The table needs exactly one column '{column}'; it has {have}.")
    return pa.table({wire: table[column] for wire, column in columns.items()})


@contextmanager
def telling(progress: bool | Told, what: str) -> Iterator[Told]:
    """`progress` True: a bar on a terminal, nothing when piped. A function is called with (rows sent, rows or None)."""
    if callable(progress):
        yield progress
        return
    from shared.service.cli import progress as bar

    with bar(what, quiet=not progress) as report:
        yield lambda sent, total: report(f"{sent:,} rows", sent / total if total else 0.0)
