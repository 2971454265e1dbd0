"""Dependencies of every route: the services, the caller, streamed uploads, calls under an `Idempotency-Key`."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartParser

from features_party.bootstrap import Services
from features_party.receive.labels_service import LabelsService, permitted
from label_dp.errors import InvalidInput, UnsupportedMediaType
from label_dp.http.asgi import is_utf8
from label_dp.http.route_docs import require
from label_dp.store.apikeys import Principal
from label_dp.store.idempotency import Claim, IdempotentCall, Reply, forget_old

if TYPE_CHECKING:
    from pydantic import SecretStr

JSON_TYPE = "application/json"
TABLE_TYPES = ("application/vnd.apache.parquet", "application/x-parquet", "application/octet-stream", "text/csv")
TAR_TYPE = "application/x-tar"
FORM_TYPE = "multipart/form-data"
COPY_CHUNK = 1 << 20
MultiPartParser.spool_max_size = 1 << 14  # bytes in memory of each of thousands of files; by default a mebibyte


def services(request: Request) -> Services:
    """Return the services of the application."""
    ctx: Services = request.app.state.services
    return ctx


Ctx = Annotated[Services, Depends(services)]
Trainer = Annotated[Principal, require("trainer")]
Reader = Annotated[Principal, require("trainer", "auditor")]
Auditor = Annotated[Principal, require("auditor")]


def media_type(request: Request) -> str:
    """Return the media type of a request's body, without parameters."""
    return request.headers.get("content-type", "").split(";")[0].strip().lower()


@asynccontextmanager
async def workspace(ctx: Services, room: Path) -> AsyncIterator[Path]:
    """Yield a private folder for one request, removed at its end."""
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
    """Read the files (name as sent, our copy) and the text fields of a multipart form."""
    files: list[tuple[str, Path]] = []
    fields: dict[str, str] = {}
    if not is_utf8(request.headers.get("content-type", "")):
        raise unsupported("multipart/form-data, in UTF-8")
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
    """Return the error that lists the supported media types."""
    return UnsupportedMediaType(f"Send one of these content types: {', '.join(types)}.")


@contextmanager
def labels_service(ctx: Services, url: str, api_key: SecretStr | None) -> Iterator[LabelsService]:
    """Yield a client of the labels party at `url`, with the caller's key, that of its invitation or, if the operator
    listed the URL, ours. Raises InvalidInput and NotFound as `permitted` does, and Busy at the limit of calls."""
    own = api_key.get_secret_value() if api_key is not None else ctx.pinned.api_key(url) or ""
    settings = ctx.settings
    target = permitted(url, settings.labels_urls, own_key=bool(own))
    ours = settings.labels_api_key.get_secret_value() if settings.labels_api_key is not None else None
    files, closed, tls = settings.file_urls, bool(settings.labels_urls), settings.labels_tls()
    with (
        ctx.outgoing.call(target) as within,
        LabelsService(target, own or ours, files=files, closed=closed, tls=tls, within=within) as service,
    ):
        yield service


def checked_id_column(value: str | None) -> str:
    """Return the id column. Raises InvalidInput if it is missing."""
    if not value:
        raise InvalidInput("Name the id column of the table with id_column.")
    return value


def fingerprint(*parts: bytes | str | Path | None) -> bytes:
    """Hash the parts, each with its length; a path counts as the bytes of its file."""
    whole = hashlib.sha256()
    for part in parts:
        inner = hashlib.sha256()
        if isinstance(part, Path):
            with part.open("rb") as file:
                while chunk := file.read(COPY_CHUNK):
                    inner.update(chunk)
        elif part is not None:
            inner.update(part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part)
        whole.update(b"\0" if part is None else b"\1" + inner.digest())
    return whole.digest()


def idempotent(
    ctx: Services, caller: Principal, key: str | None, call: str, body: Callable[[], bytes]
) -> IdempotentCall:
    """Describe a call under this API key; `body` is called only if there is a key."""
    if key is not None:
        forget_old(ctx.database, ctx.idempotency.table)
    return ctx.idempotency.call(caller.key_id, key, call, body)


def claimed(call: IdempotentCall, effect: Callable[[IdempotentCall], Reply]) -> Reply:
    """Return the earlier answer, or that of `effect`, which runs under a claim; a refusal gives the key back."""
    with Claim(call) as claim:
        return claim.take() or call.keep(effect(call))
