"""Plans and releases: ask for one, watch its state, fetch the signed manifest and the bytes."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import FileResponse
from sqlalchemy.engine import Connection

from labels_party.api.context import Ctx, IdempotencyKey, Owner, Reader, Viewer, actor, idempotent
from labels_party.api.models import PlanOut, ReleaseIn, ReleaseOut
from labels_party.bootstrap import Services
from labels_party.options import make_preview, parse_request
from labels_party.release.releases import ReleaseFile
from shared.errors import Conflict, NotFound, RangeNotSatisfiable
from shared.message.bundle import FOLDER_ENVELOPE
from shared.service.apikeys import Principal
from shared.service.http import PROBLEM_RESPONSES, Receive, Scope, Send, problem_responses

DAY = 86_400

router = APIRouter(prefix="/v1", responses=PROBLEM_RESPONSES)
BYTES = problem_responses(409, 416)


class ServedFile(FileResponse):
    """A file with Range; the framework's plain-text refusal of a range becomes a problem."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = False

        async def watched(message: Any) -> None:
            nonlocal refused
            refused = refused or (message["type"] == "http.response.start" and message["status"] >= 400)
            if not refused:
                await send(message)

        await super().__call__(scope, receive, watched)
        if refused:
            raise RangeNotSatisfiable("The Range header names no bytes of this file; ask for bytes=FIRST-LAST.")


@router.get("/populations/{population}/plan", tags=["releases"], responses=problem_responses(409))
def plan(
    population: str,
    ctx: Ctx,
    _: Owner,
    epsilon: Annotated[list[str], Query(examples=[["0.5", "1"]], description="One or several.")],
    loss: str = "squared",
    n: Annotated[int | None, Query(ge=1)] = None,
    batch: str | None = None,
    prior: Annotated[str | None, Query(description="'latest': as with a carried-over prior, which costs no ε.")] = None,
    clip_quantile: Annotated[str | None, Query(description="Q or LOW:HIGH, bought with clip_epsilon.")] = None,
    clip_epsilon: Annotated[str | None, Query(description="Of every ε.")] = None,
) -> PlanOut:
    """What each mechanism would give at each ε, and which to take; made of public and already private facts only."""
    return PlanOut(**make_preview(ctx, population, epsilon, loss, n, batch, prior, clip_quantile, clip_epsilon))


@router.post(
    "/batches/{batch}/releases", status_code=202, tags=["releases"], responses=problem_responses(403, 409, 413)
)
def create_release(
    batch: str,
    body: ReleaseIn,
    request: Request,
    response: Response,
    ctx: Ctx,
    caller: Owner,
    key: IdempotencyKey = None,
) -> ReleaseOut:
    """Charge the ledger and queue the draw. Over budget is refused before anything is charged.

    In a four-eyes population the release is `accepted` and waits, uncharged, for `approve` by another API key.
    """
    _, population = ctx.database.read("release.look", lambda c: ctx.batches.get(c, batch))
    loss = body.loss if isinstance(body.loss, str) else body.loss.loss()
    wanted = parse_request(
        ctx,
        population,
        epsilon=body.epsilon,
        mechanism=body.mechanism,
        loss=loss,
        prior=body.prior,
        prior_epsilon=body.prior_epsilon,
        prior_method=body.prior_method,
        clip=body.clip,
        unclipped=body.unclipped,
        tight=body.tight,
        additional_release=body.additional_release,
        clip_quantile=body.clip_quantile,
        clip_epsilon=body.clip_epsilon,
        files=False,
    )
    call = idempotent(ctx, caller, key, request.url.path, body.model_dump_json().encode())
    status, answer = ctx.releases.request(batch, wanted, actor(caller), call)
    ctx.worker.wake()
    response.status_code = status
    response.headers["Location"] = f"/v1/releases/{answer['id']}"
    return ReleaseOut(**answer)


@router.get("/releases/{release}", tags=["releases"])
def get_release(release: str, ctx: Ctx, caller: Viewer) -> ReleaseOut:
    """State and ε split; digests and files once it is published, and nothing of a draw before."""

    def look(connection: Connection) -> dict[str, Any]:
        found = ctx.releases.get(connection, release)
        _, population = ctx.releases.population_of(connection, found)
        _allow(caller, population.audiences, release)
        described = ctx.releases.describe(connection, found, population)
        if caller.role == "features":
            # as in the manifest: to the day
            described |= {name: described[name] and described[name][:10] for name in ("created", "published")}
            described |= dict.fromkeys(("requested_by", "approved_by", "approved"))
        return described

    return ReleaseOut(**ctx.database.read("release.get", look))


@router.get("/releases/{release}/manifest", tags=["releases"], response_class=FileResponse, responses=BYTES)
def manifest(release: str, request: Request, ctx: Ctx, caller: Reader) -> Response:
    """The signed manifest (DSSE envelope): verify it before fetching anything else."""
    return _serve(ctx, caller, release, FOLDER_ENVELOPE, request)


@router.get("/releases/{release}/message", tags=["releases"], response_class=FileResponse, responses=BYTES)
def message(release: str, request: Request, ctx: Ctx, caller: Reader) -> Response:
    """The one file of a message that has only one."""
    parts = [f for f in _files(ctx, caller, release) if f.role == "message"]
    if len(parts) != 1:
        raise Conflict(f"This message has {len(parts)} files; fetch each by its name from the manifest.")
    return _serve(ctx, caller, release, parts[0].name, request)


@router.get("/releases/{release}/files/{name}", tags=["releases"], response_class=FileResponse, responses=BYTES)
def file(release: str, name: str, request: Request, ctx: Ctx, caller: Reader) -> Response:
    """A file that the manifest names; byte-identical for ever, with ETag and Range."""
    return _serve(ctx, caller, release, name, request)


def _allow(caller: Principal, audiences: tuple[str, ...], release: str) -> None:
    if caller.role == "features" and caller.audience not in audiences:
        raise NotFound(f"There is no release '{release}'.")


def _files(ctx: Services, caller: Principal, release: str) -> list[ReleaseFile]:
    def look(connection: Connection) -> list[ReleaseFile]:
        _, population = ctx.releases.population_of(connection, ctx.releases.get(connection, release))
        _allow(caller, population.audiences, release)
        return ctx.releases.files(connection, release)

    return ctx.database.read("release.files", look)


def _serve(ctx: Services, caller: Principal, release: str, name: str, request: Request) -> Response:
    found = next((f for f in _files(ctx, caller, release) if f.name == name), None)
    if found is None:
        raise NotFound(f"Release '{release}' has no file of that name.")
    etag = f'"{found.sha256}"'
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if etag in known or "*" in known:
        return Response(status_code=304, headers={"ETag": etag})
    path: Path = ctx.home.releases / found.path
    kind = "application/json" if found.role == "envelope" else "application/vnd.apache.parquet"
    # the file's own time would tell the second of the draw; the manifest tells the day
    midnight = format_datetime(datetime.fromtimestamp(path.stat().st_mtime // DAY * DAY, UTC), usegmt=True)
    headers = {"ETag": etag, "Cache-Control": "private, immutable", "Last-Modified": midnight}
    return ServedFile(path, media_type=kind, headers=headers)
