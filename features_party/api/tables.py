"""Feature tables and the id list that is made from one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast

from fastapi import Query, Request, Response

from features_party.api import context
from features_party.api.schemas import IdListIn, IdListOut, TablePath
from features_party.bootstrap import Services
from features_party.tables.feature_tables import unix_seconds
from features_party.tables.output import write_table
from label_dp.errors import InvalidFile
from label_dp.http.calls import UPLOAD
from label_dp.http.filters import LINK_DOCS, PagedEitherWay, with_link
from label_dp.http.json_bodies import JsonRouter, read_body
from label_dp.http.route_docs import PROBLEM_RESPONSES, IdempotencyKey, problem_responses
from label_dp.http.threads import Threads
from label_dp.schemas.replies import TableOut
from label_dp.store.apikeys import Principal
from label_dp.store.idempotency import IdempotentCall, Reply

router = JsonRouter(prefix="/v1", tags=["feature tables"], responses=PROBLEM_RESPONSES)

READERS = Threads(8)  # they may wait for memory
REFUSALS = problem_responses(409, 413, 415)
UPLOAD_DOCS: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            context.TABLE_TYPES[0]: {"schema": {"type": "string", "format": "binary"}},
            "text/csv": {"schema": {"type": "string"}, "example": "click_id,age,country\nc1,41,UK\n"},
            context.FORM_TYPE: {
                "schema": {
                    "type": "object",
                    "properties": {"file": {"type": "string", "format": "binary"}, "id_column": {"type": "string"}},
                }
            },
            context.JSON_TYPE: {
                "schema": TablePath.model_json_schema(),
                "example": {"path": "2024-06/impressions.parquet", "id_column": "click_id"},
            },
        },
    }
}


@router.post("/feature-tables", status_code=201, openapi_extra=UPLOAD_DOCS, responses=REFUSALS, dependencies=[UPLOAD])
async def create(
    request: Request,
    response: Response,
    ctx: context.Ctx,
    caller: context.Trainer,
    id_column: Annotated[str | None, Query(max_length=200, description="Id column of an uploaded table.")] = None,
    name: Annotated[str, Query(max_length=200, description="What to call an uploaded table.")] = "upload",
    key: IdempotencyKey = None,
) -> TableOut:
    """Upload a Parquet or CSV table (raw body, or a form with `file` and `id_column`), or name a file below the
    service's data folder (JSON)."""
    kind = context.media_type(request)
    if kind not in (*context.TABLE_TYPES, context.FORM_TYPE, context.JSON_TYPE):
        raise context.unsupported(*context.TABLE_TYPES, context.FORM_TYPE, context.JSON_TYPE)
    async with context.workspace(ctx, ctx.home.feature_tables) as folder:
        table_request = _TableRequest(id_column, name)
        if kind == context.JSON_TYPE:
            table_request.path = await read_body(request, TablePath)
        elif kind == context.FORM_TYPE:
            files, fields = await context.form_to_files(request, folder)
            if len(files) != 1:
                raise InvalidFile("Send exactly one file in the form.")
            table_request.name = name if name != "upload" else files[0][0]
            table_request.id_column, table_request.source = id_column or fields.get("id_column"), files[0][1]
        else:
            table_request.source = folder / "body"
            await context.body_to_file(request, table_request.source)
        row = await READERS.run(partial(_store, ctx, caller, key, table_request))
    response.headers["Location"] = f"/v1/feature-tables/{row['id']}"
    return row


@dataclass
class _TableRequest:
    """A table to store: an uploaded file, or a path below the data folder."""

    id_column: str | None
    name: str
    source: Path | None = None
    path: TablePath | None = None

    def fingerprint(self) -> bytes:
        path = self.path.model_dump_json() if self.path is not None else None
        return context.fingerprint(self.id_column, self.name, self.source, path)


def _store(ctx: Services, caller: Principal, key: str | None, table_request: _TableRequest) -> TableOut:
    def store(call: IdempotentCall) -> Reply:
        if table_request.path is not None:
            return 201, ctx.feature_tables.register(table_request.path.path, table_request.path.id_column, call)
        source = table_request.source
        assert source is not None
        column = context.checked_id_column(table_request.id_column)
        return 201, ctx.feature_tables.upload(lambda target: source.rename(target), column, table_request.name, call)

    call = context.idempotent(ctx, caller, key, "POST /v1/feature-tables", table_request.fingerprint)
    return cast("TableOut", context.claimed(call, store)[1])


@router.get("/feature-tables", responses=LINK_DOCS)
def list_tables(
    request: Request, response: Response, ctx: context.Ctx, _: context.Reader, page: PagedEitherWay
) -> list[TableOut]:
    """Stored tables by the time they came."""
    return with_link(ctx.feature_tables.list(page), request, response)


@router.get("/feature-tables/{table}")
def get_table(table: str, ctx: context.Ctx, _: context.Reader) -> TableOut:
    """Name, id column, rows and columns."""
    return ctx.feature_tables.get(table)


@router.delete("/feature-tables/{table}", status_code=204, responses=problem_responses(409))
def delete_table(table: str, ctx: context.Ctx, _: context.Trainer) -> None:
    """Remove a table, and the file of an upload; refused (409) while a training that waits or runs needs it."""
    ctx.feature_tables.delete(table)


@router.post("/feature-tables/{table}/id-list", responses=problem_responses(413, 502, 503))
def send_ids(table: str, body: IdListIn, ctx: context.Ctx, _: context.Trainer) -> IdListOut:
    """Send the table's ids to a labels party as the examples of an open batch. Ids are not private; labels are.

    With `time_column` the time of each example goes with them, for labels from events within days of it.
    """
    import pyarrow as pa

    feature_table = ctx.feature_tables.open(table)
    ids, columns = feature_table.ids, {"example_id": feature_table.ids}
    if body.time_column is not None:
        columns["time"] = unix_seconds(feature_table, body.time_column)
    path = ctx.home.incoming(ctx.home.feature_tables).with_suffix(".parquet")
    try:
        write_table(pa.table(columns), path)
        with context.labels_service(ctx, body.url, body.api_key) as service:
            answer = service.send_ids(body.batch, path)
    finally:
        path.unlink(missing_ok=True)
    return IdListOut(batch=body.batch, ids=len(ids), answer=answer)
