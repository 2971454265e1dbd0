"""The OpenAPI document of uploads: every format and shape of a body, with an example, and the names of the columns of a
table, if not those of the members of a JSON record."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Query

from label_dp.class_names import MAX_NAME
from label_dp.schemas.events import LONGEST_NAME
from label_dp.schemas.json_types import JsonObject
from labels_party.labels.formats.formats import ARROW, CSV, JSON, NDJSON, PARQUET
from labels_party.labels.parsing import ID, LABEL, LATEST, SCORE, SCORE_2, TIME, UNIT

_ID: dict[str, Any] = {
    "description": "The id that both parties know the example by: text of 1 to 512 bytes in UTF-8, or a whole number.",
    "oneOf": [{"type": "string", "minLength": 1, "maxLength": 512}, {"type": "integer"}],
}
_UNIT = _ID | {
    "description": "Whose example it is. Only, and then always, in a population with a unit column; among labels only "
    "where presence is public."
}
_TIME: dict[str, Any] = {
    "type": "integer",
    "minimum": 0,
    "maximum": LATEST,
    "description": "Its time in Unix seconds. Only, and then always, where the population's events have a window.",
}
_TWO: dict[str, list[Any]] = {
    ID: ["click-1", "click-2"],
    LABEL: [12.5, 0],
    UNIT: ["user-7", "user-8"],
    SCORE: [0.25, 0.5],
    SCORE_2: [19.9, 5.5],
}


def _column(what: str) -> Any:
    return Query(min_length=1, max_length=200, description=f"Its column with {what}, in a table.")


_IdColumn = Annotated[str | None, _column("ids")]
_LabelColumn = Annotated[str | None, _column("labels")]
_ScoreColumn = Annotated[str | None, _column("scores")]
_SecondScoreColumn = Annotated[str | None, _column("second scores, for a map of two")]
_UnitColumn = Annotated[str | None, _column("units")]
_TimeColumn = Annotated[str | None, _column("times")]


def upload_docs(fields: tuple[str, ...], *, note: str = "", optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """`openapi_extra` of a route that takes `fields` (and `unit`, where the population has units); `note` says when
    the `optional` ones belong to them."""
    members: dict[str, dict[str, Any]] = {ID: _ID}
    if LABEL in fields:
        members[LABEL] = {
            "type": ["number", "string", "null"],
            "maxLength": MAX_NAME,
            "description": "A finite number; where the domain has names, one of them. With `mode=upsert` null deletes "
            "the label; otherwise null is refused.",
        }
    if SCORE in fields:
        members |= {name: {"type": "number", "description": "A finite number."} for name in (SCORE, *optional)}
    else:
        members[UNIT] = _UNIT
    if fields == (ID,):
        members[TIME] = _TIME
    record = {"type": "object", "properties": members, "required": list(fields), "additionalProperties": False}
    columns = {
        "type": "object",
        "title": "Columns",
        "description": "One list per field, all of the same length; at most 16 MiB.",
        "properties": {name: {"type": "array", "items": kind, "minItems": 1} for name, kind in members.items()},
        "required": list(fields),
        "additionalProperties": False,
    }
    records = {
        "type": "object",
        "title": "Records",
        "properties": {"records": {"type": "array", "items": record, "minItems": 1}},
        "required": ["records"],
        "additionalProperties": False,
    }
    rows = [{name: _TWO[name][i] for name in fields} for i in range(2)]
    lines = "".join(_line(row) + "\n" for row in rows)
    table = ",".join(fields) + "\n" + "".join(",".join(str(v) for v in row.values()) + "\n" for row in rows)
    binary = {"type": "string", "format": "binary"}
    names = ", ".join(f"`{name}`" for name in fields)
    content: dict[str, Any] = {
        JSON.types[0]: {
            "schema": {"oneOf": [records, columns]},
            "examples": {
                "records": {"summary": "One object per record", "value": {"records": rows}},
                "columns": {"summary": "One list per field", "value": {name: _TWO[name] for name in fields}},
            },
        },
        NDJSON.types[0]: {
            "schema": {"type": "string", "description": "One record per line, each at most 64 KiB."},
            "example": lines,
        },
        CSV.types[0]: {
            "schema": {
                "type": "string",
                "description": f"UTF-8 with a header that names {names}; others are passed over.",
            },
            "example": table,
        },
        ARROW.types[0]: {"schema": binary | {"description": f"Columns {names}; record batches of at most 64 MiB."}},
        PARQUET.types[0]: {"schema": binary | {"description": f"Columns {names}."}},
    }
    return {"requestBody": {"required": True, "description": note, "content": content}}


def _line(row: dict[str, Any]) -> str:
    import json

    return json.dumps(row, separators=(",", ":"))


def event_docs() -> JsonObject:
    """`openapi_extra` of the route that takes events; other members may be there, and are not read."""
    event: dict[str, Any] = {
        "type": "object",
        "title": "Core event object",
        "properties": {
            "data_set_id": {"type": "string", "maxLength": LONGEST_NAME},
            "id": {"type": ["string", "integer", "null"], "description": "Records with the same id are one event."},
            "timestamp": {"type": "integer", "minimum": 0, "maximum": LATEST, "description": "Unix seconds."},
            "event_type": {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME},
            "custom_event": {"type": ["string", "null"], "description": "Required if event_type is custom."},
            "value": {"type": ["number", "null"], "description": "Kept to six decimals."},
            "currency_code": {"type": ["string", "null"], "description": "Required if value is set: ISO 4217."},
            "user_data": {
                "type": ["object", "null"],
                "properties": {
                    "click_id": {"type": ["string", "integer", "null"]},
                    "impression_id": {"type": ["string", "integer", "null"]},
                    "mmt_only": {"type": ["boolean", "null"]},
                },
            },
        },
        "required": ["data_set_id", "timestamp", "event_type"],
        "additionalProperties": True,
    }
    one: JsonObject = {
        "data_set_id": "shop-orders",
        "id": "order-1",
        "timestamp": 1_746_558_464,
        "event_type": "purchase",
        "value": 22.0,
        "currency_code": "EUR",
        "user_data": {"click_id": "click-1"},
    }
    content: JsonObject = {
        JSON.types[0]: {"schema": {"oneOf": [event, {"type": "array", "items": event}]}, "example": one},
        NDJSON.types[0]: {
            "schema": {"type": "string", "description": "One event per line."},
            "example": _line(one) + "\n",
        },
        PARQUET.types[0]: {
            "schema": {
                "type": "string",
                "format": "binary",
                "description": "A column for each member, and struct columns of the same nesting; `timestamp` holds "
                "whole Unix seconds or an Arrow timestamp, in UTC where it names no zone.",
            }
        },
    }
    return {"requestBody": {"required": True, "content": content}}


def _of_ids(
    id_column: _IdColumn = None, unit_column: _UnitColumn = None, time_column: _TimeColumn = None
) -> dict[str, str]:
    return _given({ID: id_column, UNIT: unit_column, TIME: time_column})


def _of_labels(
    id_column: _IdColumn = None, label_column: _LabelColumn = None, unit_column: _UnitColumn = None
) -> dict[str, str]:
    return _given({ID: id_column, LABEL: label_column, UNIT: unit_column})


def _of_scores(
    id_column: _IdColumn = None, score_column: _ScoreColumn = None, score_2_column: _SecondScoreColumn = None
) -> dict[str, str]:
    return _given({ID: id_column, SCORE: score_column, SCORE_2: score_2_column})


def _given(columns: dict[str, str | None]) -> dict[str, str]:
    return {field: name for field, name in columns.items() if name is not None}


IdColumns = Annotated[dict[str, str], Depends(_of_ids)]
LabelColumns = Annotated[dict[str, str], Depends(_of_labels)]
ScoreColumns = Annotated[dict[str, str], Depends(_of_scores)]
