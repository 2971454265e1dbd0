"""Feature tables and the id list that is made from one."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from features_party.api.context import (
    FORM_TYPE,
    JSON_TYPE,
    TABLE_TYPES,
    Ctx,
    Reader,
    Trainer,
    body_to_file,
    checked_id_column,
    form_to_files,
    labels_service,
    media_type,
    unsupported,
    workspace,
)
from features_party.api.schemas import IdListIn, IdListOut, TableOut, TablePath
from features_party.join import write_table
from shared.errors import InvalidFile, InvalidInput
from shared.service.http import PROBLEM_RESPONSES

router = APIRouter(prefix="/v1", tags=["feature tables"], responses=PROBLEM_RESPONSES)

UPLOAD_DOCS: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            TABLE_TYPES[0]: {"schema": {"type": "string", "format": "binary"}},
            "text/csv": {"schema": {"type": "string"}, "example": "click_id,age,country\nc1,41,UK\n"},
            FORM_TYPE: {
                "schema": {
                    "type": "object",
                    "properties": {"file": {"type": "string", "format": "binary"}, "id_column": {"type": "string"}},
                }
            },
            JSON_TYPE: {
                "schema": TablePath.model_json_schema(),
                "example": {"path": "2024-06/impressions.parquet", "id_column": "click_id"},
            },
        },
    }
}


@router.post("/feature-tables", status_code=201, openapi_extra=UPLOAD_DOCS)
async def create(
    request: Request,
    response: Response,
    ctx: Ctx,
    _: Trainer,
    id_column: Annotated[str | None, Query(max_length=200, description="Id column of an uploaded table.")] = None,
    name: Annotated[str, Query(max_length=200, description="What to call an uploaded table.")] = "upload",
) -> TableOut:
    """Upload a Parquet or CSV table (raw body, or a form with `file` and `id_column`), or name a file below the
    service's data folder (JSON)."""
    kind = media_type(request)
    if kind == JSON_TYPE:
        body = await _path_body(request)
        row = await run_in_threadpool(ctx.feature_tables.register, body.path, body.id_column)
    elif kind in (*TABLE_TYPES, FORM_TYPE):
        async with workspace(ctx, ctx.home.feature_tables) as folder:
            if kind == FORM_TYPE:
                files, fields = await form_to_files(request, folder)
                if len(files) != 1:
                    raise InvalidFile("Send exactly one file in the form.")
                name, source = (name if name != "upload" else files[0][0]), files[0][1]
                id_column = id_column or fields.get("id_column")
            else:
                source = folder / "body"
                await body_to_file(request, source)
            column = checked_id_column(id_column)
            row = await run_in_threadpool(ctx.feature_tables.upload, lambda target: source.rename(target), column, name)
    else:
        raise unsupported(*TABLE_TYPES, FORM_TYPE, JSON_TYPE)
    response.headers["Location"] = f"/v1/feature-tables/{row['id']}"
    return TableOut(**row)


async def _path_body(request: Request) -> TablePath:
    from pydantic import ValidationError

    try:
        return TablePath.model_validate_json(await request.body())
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise InvalidInput(f"{'.'.join(str(p) for p in first['loc']) or 'body'}: {first['msg']}.") from None


@router.get("/feature-tables")
def list_tables(ctx: Ctx, _: Reader) -> list[TableOut]:
    return [TableOut(**row) for row in ctx.feature_tables.list()]


@router.get("/feature-tables/{table}")
def get_table(table: str, ctx: Ctx, _: Reader) -> TableOut:
    return TableOut(**ctx.feature_tables.get(table))


@router.post("/feature-tables/{table}/id-list")
def send_ids(table: str, body: IdListIn, ctx: Ctx, _: Trainer) -> IdListOut:
    """Send the table's ids to a labels party as the examples of an open batch. Ids are not private; labels are."""
    import pyarrow as pa

    ids = ctx.feature_tables.open(table).ids
    path = ctx.home.incoming(ctx.home.feature_tables).with_suffix(".parquet")
    try:
        write_table(pa.table({"example_id": ids}), path)
        with labels_service(ctx, body.url, body.api_key) as service:
            answer = service.send_ids(body.batch, path)
    finally:
        path.unlink(missing_ok=True)
    return IdListOut(batch=body.batch, ids=len(ids), answer=answer)
