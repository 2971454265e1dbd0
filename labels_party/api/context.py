"""What every route needs: the services, the caller, the raw body, the idempotent call."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Header, Request

from labels_party.bootstrap import Services
from labels_party.labels.parsing import parse_file, parse_json
from labels_party.storage.idempotency import IdempotentCall
from shared.errors import UnsupportedMediaType
from shared.service.apikeys import Principal
from shared.service.http import require

JSON_TYPE = "application/json"
PARQUET_TYPES = ("application/vnd.apache.parquet", "application/x-parquet", "application/octet-stream")
CSV_TYPE = "text/csv"


def services(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


async def raw_body(request: Request) -> bytes:
    return await request.body()


Ctx = Annotated[Services, Depends(services)]
RawBody = Annotated[bytes, Depends(raw_body)]
IdempotencyKey = Annotated[
    str | None,
    Header(alias="Idempotency-Key", description="Repeat a call safely: same key and body, same answer, one effect."),
]
Owner = Annotated[Principal, require("owner")]
Ingest = Annotated[Principal, require("ingest", "owner")]
Lister = Annotated[Principal, require("owner", "features")]
Reader = Annotated[Principal, require("features", "owner")]
Auditor = Annotated[Principal, require("auditor", "owner")]


def actor(caller: Principal) -> str:
    return f"apikey:{caller.key_id}"


def idempotent(ctx: Services, caller: Principal, key: str | None, path: str, body: bytes) -> IdempotentCall:
    """A call that is remembered under this API key with a keyed MAC of path and body."""
    data = path.encode("utf-8") + b"\0" + body
    return IdempotentCall(caller.key_id, key, ctx.secrets.mac("idempotency", data) if key is not None else "")


def table_of(request: Request, body: bytes, fields: tuple[str, ...]) -> Any:
    """The uploaded rows as an Arrow table, by content type. Raises UnsupportedMediaType, InvalidFile, InvalidRows."""
    kind = request.headers.get("content-type", JSON_TYPE).split(";")[0].strip().lower()
    if kind == JSON_TYPE:
        return parse_json(body, fields)
    if kind in PARQUET_TYPES or kind == CSV_TYPE:
        return parse_file(body, fields, fields)
    raise UnsupportedMediaType(f"Send {JSON_TYPE}, {PARQUET_TYPES[0]} or {CSV_TYPE}.")


def upload_docs(fields: tuple[str, ...]) -> dict[str, Any]:
    """OpenAPI of an upload body."""
    example = {"example_id": "click-1", "label": 12.5}
    record = {name: example[name] for name in fields}
    return {
        "requestBody": {
            "required": True,
            "content": {
                JSON_TYPE: {"schema": {"type": "object"}, "example": {"records": [record]}},
                PARQUET_TYPES[0]: {"schema": {"type": "string", "format": "binary"}},
                CSV_TYPE: {"schema": {"type": "string"}, "example": ",".join(fields)},
            },
        }
    }
