"""What every route needs: the services, the caller, streamed uploads, rows as a table."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, Request
from starlette.datastructures import UploadFile

from features_party.bootstrap import Services
from features_party.labels_service import LabelsService
from features_party.labels_url import permitted
from features_party.training.encoding import FeatureSchema
from shared.errors import InvalidInput, InvalidRows, InvalidTable, RowProblem, UnsupportedMediaType
from shared.service.apikeys import Principal
from shared.service.http import require

if TYPE_CHECKING:
    import pyarrow as pa
    from pydantic import SecretStr

JSON_TYPE = "application/json"
TABLE_TYPES = ("application/vnd.apache.parquet", "application/x-parquet", "application/octet-stream", "text/csv")
TAR_TYPE = "application/x-tar"
FORM_TYPE = "multipart/form-data"
COPY_CHUNK = 1 << 20


def services(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


Ctx = Annotated[Services, Depends(services)]
Trainer = Annotated[Principal, require("trainer")]
Reader = Annotated[Principal, require("trainer", "auditor")]
Auditor = Annotated[Principal, require("auditor")]


def actor(caller: Principal) -> str:
    return f"apikey:{caller.key_id}"


def media_type(request: Request) -> str:
    return request.headers.get("content-type", "").split(";")[0].strip().lower()


@asynccontextmanager
async def workspace(ctx: Services, room: Path) -> AsyncIterator[Path]:
    """A private folder for one request, removed at its end."""
    folder = ctx.home.incoming(room)
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def body_to_file(request: Request, target: Path) -> None:
    """Stream the raw body to `target`; bounded by the body limit."""
    with target.open("wb") as file:
        async for chunk in request.stream():
            file.write(chunk)


async def form_to_files(request: Request, folder: Path) -> tuple[list[tuple[str, Path]], dict[str, str]]:
    """The files (name as sent, our copy) and the text fields of a multipart form."""
    files: list[tuple[str, Path]] = []
    fields: dict[str, str] = {}
    async with request.form(max_files=4100, max_fields=100) as form:
        for name, value in form.multi_items():
            if isinstance(value, UploadFile):
                target = folder / f"part-{len(files)}"
                with target.open("wb") as file:
                    while chunk := await value.read(COPY_CHUNK):
                        file.write(chunk)
                files.append((value.filename or name, target))
            else:
                fields[name] = value
    return files, fields


def unsupported(*types: str) -> UnsupportedMediaType:
    return UnsupportedMediaType(f"Send one of these content types: {', '.join(types)}.")


def labels_service(ctx: Services, url: str, api_key: SecretStr | None) -> LabelsService:
    """A client of the labels party at `url`, with the caller's key or, where the operator listed the URL, ours.

    Raises InvalidInput and NotFound as `permitted` does.
    """
    own = api_key.get_secret_value() if api_key is not None else ""
    wanted = permitted(url, ctx.settings.labels_urls, own_key=bool(own))
    ours = ctx.settings.labels_api_key
    return LabelsService(wanted, own or (ours.get_secret_value() if ours is not None else None))


def rows_table(schema: FeatureSchema, rows: list[dict[str, Any]]) -> pa.Table:
    """JSON rows as the model's columns. A key that occurs in no row at all is a missing column (InvalidTable); a cell
    of the wrong kind is refused (InvalidRows) by row and column."""
    import pyarrow as pa

    keys = set().union(*rows)
    absent = [c.name for c in schema.columns if c.name not in keys]
    if absent:
        names = ", ".join(f"'{name}'" for name in absent[:20])
        raise InvalidTable(f"The rows lack these columns of the model: {names}. Send null where a value is unknown.")
    columns: dict[str, Any] = {}
    for column in schema.columns:
        cells = [row.get(column.name) for row in rows]
        if column.kind == "number":
            _refuse(cells, column.name, (int, float), "a number or null is expected here")
            columns[column.name] = pa.array([_number(c) for c in cells], pa.float64())
        elif column.kind == "category":
            columns[column.name] = pa.array([_text(c) for c in cells], pa.string())
        else:
            _refuse(cells, column.name, (str,), "an ISO 8601 date or time, or null, is expected here")
            columns[column.name] = pa.array(cells, pa.string())
    return pa.table(columns)


def _refuse(cells: list[Any], field: str, kinds: tuple[type, ...], rule: str) -> None:
    bad = [row for row, cell in enumerate(cells) if cell is not None and not isinstance(cell, kinds)]
    if bad:
        raise InvalidRows([RowProblem(row, field, rule) for row in bad[: InvalidRows.shown]], len(bad))


def _number(cell: Any) -> float | None:
    try:
        return None if cell is None else float(cell)
    except OverflowError:  # a whole number beyond any float counts as missing, as infinity does
        return None


def _text(cell: Any) -> str | None:
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell)


def checked_id_column(value: str | None) -> str:
    if not value:
        raise InvalidInput("Name the id column of the table with id_column.")
    return value
