"""Charged work of every kind: what an ε would give before it is spent; its state, its signed document and files,
decisions on it, receipts, what was published.

Releases and answers have the same calls, each family under its own word.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from email.utils import format_datetime
from functools import cache
from typing import Annotated, Any

from fastapi import Body as Sent
from fastapi import Path, Query, Request, Response
from fastapi.responses import FileResponse, RedirectResponse
from pydantic import BaseModel, Field
from sqlalchemy.engine import Connection

from label_dp.errors import Conflict, NotFound
from label_dp.http.files import ServedFile
from label_dp.http.filters import LINK_DOCS, Paged, with_link
from label_dp.http.json_bodies import JsonRouter
from label_dp.http.route_docs import PROBLEM_RESPONSES, problem_responses
from label_dp.schemas.filters import Day, WorkState
from label_dp.schemas.plan import Plan
from label_dp.schemas.replies import ListedAnswer, ListedRelease, ListedWork, PlanOut, ReceiptState, SigningKeysOut
from label_dp.store.apikeys import Principal
from label_dp.store.paging import Listing, Page
from labels_party.api.context import (
    Approver,
    Auditor,
    Ctx,
    IdempotencyKey,
    Owner,
    Reader,
    Receiver,
    Viewer,
    WorkViewer,
    idempotent,
)
from labels_party.api.models import AnswerOut, DeclineIn, ReleaseOut, WorkOut
from labels_party.bootstrap import Services
from labels_party.labels.batch_uses import PUBLISHED
from labels_party.mechanisms.auto import AUTO
from labels_party.message.request import RELEASE
from labels_party.planning import planned
from labels_party.work.kind import ANSWERS, RELEASES, Family, Work, WorkFile
from labels_party.work.listing import PublicationFilter, published
from labels_party.work.seen import allowed, shown
from labels_party.work.store import ENVELOPE

BYTES: dict[int | str, dict[str, Any]] = {
    307: {"description": "Fetch it there within ten minutes, without the API key"},
    **problem_responses(409, 412, 416),
}
DECISION = problem_responses(403, 409, 413)
OUT: dict[str, type[WorkOut]] = {RELEASES.noun: ReleaseOut, ANSWERS.noun: AnswerOut}
ENVELOPE_EXAMPLE = {
    "payload": "e30=",
    "payloadType": "application/vnd.label-dp.receipt+json",
    "signatures": [{"keyid": "ed25519:…", "sig": "…"}],
}


File = Annotated[str, Path(alias="name")]
Release = Annotated[str, Path(alias="release")]
Since = Annotated[Day | None, Query(description="First day of publication, such as 2026-11-01.")]
InPopulation = Annotated[str | None, Query(max_length=200, description="Only this one (name or id).")]
State = Annotated[WorkState | None, Query(description="Only releases in this state.")]
Envelope = Annotated[dict[str, Any] | None, Sent(examples=[ENVELOPE_EXAMPLE])]


# a row of a family, and its list
LISTED: dict[str, tuple[type[ListedWork], Any]] = {
    RELEASES.noun: (ListedRelease, list[ListedRelease]),
    ANSWERS.noun: (ListedAnswer, list[ListedAnswer]),
}
plans = JsonRouter(prefix="/v1", responses=PROBLEM_RESPONSES)


class ReceiptOut(BaseModel):
    work: str = Field(description="Id of the release, or of the answer.")
    audience: str
    position: int = Field(description="In the receiver's list of receipts for us, from 1.")
    digest: str = Field(description="SHA-256 of the receipt, which the next one names.")


class ReceiptStates(BaseModel):
    audience: str
    keys: list[ReceiptState] = Field(description="A registered receipt key each; none: no receipts are kept.")


@cache
def router_of(family: Family) -> JsonRouter:
    """The calls of a family, the same for every application."""
    noun, out, (listed, rows) = family.noun, OUT[family.noun], LISTED[family.noun]
    tag = f"{noun}s"
    router = JsonRouter(prefix="/v1", tags=[tag], responses=PROBLEM_RESPONSES)
    one = f"/{tag}/{{{noun}}}"

    def list_all(
        request: Request,
        response: Response,
        ctx: Ctx,
        caller: Viewer,
        page: Paged,
        since: Since = None,
        population: InPopulation = None,
    ) -> list[ListedWork]:
        """Those that are published and meant for the caller (for owner and auditor: all), of whatever kind, by day of
        publication, newest last."""
        found = _listed(ctx, caller, family, since, population, page)
        return [listed(**row) for row in with_link(found, request, response)]

    def state(name: str, ctx: Ctx, caller: WorkViewer) -> WorkOut:
        """State and ε split; digest and files once it is published, and nothing of a draw before."""

        def look(connection: Connection) -> dict[str, Any]:
            found = allowed(ctx.work, connection, caller, name, family)
            return ctx.work.describe(connection, found, ctx.work.about(connection, found)[1])

        found = ctx.database.read(f"{noun}.get", look)
        if found["state"] == PUBLISHED and found.get("mechanism") == AUTO:
            found["drawn_mechanism"] = ctx.statements.mechanism(name).name
        return out(**shown(ctx.work, found, caller))

    def document(name: str, request: Request, ctx: Ctx, caller: Reader) -> Response:
        """What was signed (DSSE envelope), the same bytes for ever: verify it before fetching anything else."""
        return _serve(ctx, caller, name, family, request, lambda f: f.role == ENVELOPE)

    def file(name: str, file: File, request: Request, ctx: Ctx, caller: Reader) -> Response:
        """A file that the signed document names; byte-identical for ever, with ETag and Range."""
        return _serve(ctx, caller, name, family, request, lambda f: f.name == file)

    def approve(name: str, request: Request, ctx: Ctx, caller: Approver, key: IdempotencyKey = None) -> WorkOut:
        """Charge what waits in a four-eyes population; not with the API key that asked for it."""
        call = idempotent(ctx, caller, key, request.url.path, b"")
        _, reply = ctx.decisions.approve(name, caller.actor, call, family)
        ctx.worker.wake()
        return out(**shown(ctx.work, reply, caller))

    def decline(
        name: str,
        request: Request,
        ctx: Ctx,
        caller: Approver,
        body: DeclineIn | None = None,
        key: IdempotencyKey = None,
    ) -> WorkOut:
        """End what waits in a four-eyes population, uncharged; not with the API key that asked for it."""
        decline_in = body or DeclineIn()
        call = idempotent(ctx, caller, key, request.url.path, decline_in.model_dump_json().encode())
        _, reply = ctx.decisions.decline(name, caller.actor, decline_in.reason, call, family)
        return out(**shown(ctx.work, reply, caller))

    def cancel(name: str, request: Request, ctx: Ctx, caller: Owner, key: IdempotencyKey = None) -> WorkOut:
        """Take it back while no draw of it ever began; what was charged is returned."""
        call = idempotent(ctx, caller, key, request.url.path, b"")
        return out(**ctx.decisions.cancel(name, caller.actor, call, family)[1])

    def receipt(name: str, response: Response, ctx: Ctx, caller: Receiver, envelope: Envelope = None) -> ReceiptOut:
        """A signed receipt (DSSE envelope) of what the caller's audience accepted. It is checked against the registered
        key and the published document and kept in the audit store; the same one again is harmless."""
        fresh, kept = ctx.receipts.keep(name, envelope, str(caller.audience), caller.actor, family)
        if not fresh:
            response.status_code = 200
        return ReceiptOut(work=name, audience=kept.audience, position=kept.position, digest=kept.digest)

    def add(method: str, path: str, call: Callable[..., Any], **more: Any) -> None:
        call.__annotations__["name"] = Annotated[str, Path(alias=noun)]
        router.add_api_route(path, call, methods=[method], **more)

    served: dict[str, Any] = {"response_class": FileResponse, "responses": BYTES}
    kept = {**problem_responses(409, 413), 200: {"model": ReceiptOut, "description": "Kept before"}}
    more = {"response_model": rows, "responses": LINK_DOCS}
    router.add_api_route(f"/{tag}", list_all, methods=["GET"], **more)
    add("GET", one, state, response_model=out)
    add("GET", f"{one}/{family.document}", document, **served)
    add("GET", f"{one}/files/{{name}}", file, **served)
    add("POST", f"{one}/approve", approve, response_model=out, responses=DECISION)
    add("POST", f"{one}/decline", decline, response_model=out, responses=DECISION)
    add("POST", f"{one}/cancel", cancel, response_model=out, responses=problem_responses(409, 413))
    add("POST", f"{one}/receipt", receipt, status_code=201, responses=kept)
    return router


router = JsonRouter(prefix="/v1", responses=PROBLEM_RESPONSES)


@router.get("/releases/{release}/message", tags=["releases"], response_class=FileResponse, responses=BYTES)
def message(name: Release, request: Request, ctx: Ctx, caller: Reader) -> Response:
    """The one file of a message that has only one."""
    parts = [f for f in _files(ctx, caller, name, RELEASES)[1] if f.role == "message"]
    if len(parts) != 1:
        raise Conflict(f"This message has {len(parts)} files; fetch each by its name from the manifest.")
    return _serve(ctx, caller, name, RELEASES, request, lambda f: f.name == parts[0].name)


@router.get("/batches/{batch}/releases", tags=["releases"])
def releases_of_batch(batch: str, ctx: Ctx, caller: Auditor, state: State = None) -> list[ReleaseOut]:
    """The releases of a batch, oldest first."""

    def look(connection: Connection) -> list[dict[str, Any]]:
        found, _ = ctx.batches.get(connection, batch)
        return _described(ctx, connection, ctx.work.of_batch(connection, found.id, RELEASE), state)

    return [ReleaseOut(**shown(ctx.work, r, caller)) for r in ctx.database.read("release.list", look)]


@router.get("/populations/{population}/releases", tags=["releases"])
def releases_of_population(population: str, ctx: Ctx, caller: Auditor, state: State = None) -> list[ReleaseOut]:
    """The releases of all batches of a population, oldest first."""

    def look(connection: Connection) -> list[dict[str, Any]]:
        found = ctx.populations.get(connection, population)
        return _described(ctx, connection, ctx.work.of_population(connection, found.id, RELEASE), state)

    return [ReleaseOut(**shown(ctx.work, r, caller)) for r in ctx.database.read("release.list", look)]


@router.get("/signing-keys", tags=["keys"])
def signing_keys(ctx: Ctx, _: Viewer) -> SigningKeysOut:
    """Our signing key, and how whoever trusts an earlier one knows that it is ours."""
    return ctx.own_keys.told()


@router.get("/receipts", tags=["receipts"])
def receipts(ctx: Ctx, caller: Receiver) -> ReceiptStates:
    """How far the caller's list of receipts is kept here: what to send next, and whether both have the same one."""
    audience = str(caller.audience)
    return ReceiptStates(audience=audience, keys=ctx.receipts.state(audience))


def _described(ctx: Services, connection: Connection, found: list[Work], state: str | None) -> list[dict[str, Any]]:
    works = [work for work in found if state in (None, work.state)]
    return [ctx.work.describe(connection, work, ctx.work.about(connection, work)[1]) for work in works]


def _listed(
    ctx: Services, caller: Principal, family: Family, since: date | None, population: str | None, page: Page
) -> Listing[dict[str, Any]]:
    audience = caller.audience if caller.role == "features" else None
    if caller.role == "features" and audience is None:
        return Listing([], None)
    publication_filter = PublicationFilter(
        audience, None if since is None else since.isoformat(), population, page.cursor, page.limit
    )
    return ctx.database.read("published.list", lambda c: published(c, ctx.work, family, publication_filter))


def _files(ctx: Services, caller: Principal, name: str, family: Family) -> tuple[Work, list[WorkFile]]:
    def look(connection: Connection) -> tuple[Work, list[WorkFile]]:
        return allowed(ctx.work, connection, caller, name, family), ctx.work.files(connection, name)

    return ctx.database.read(f"{family.noun}.files", look)


def _serve(
    ctx: Services, caller: Principal, name: str, family: Family, request: Request, wanted: Callable[[WorkFile], bool]
) -> Response:
    work, files = _files(ctx, caller, name, family)
    work_file = next((f for f in files if wanted(f)), None)
    if work_file is None:
        raise NotFound(f"{family.noun.capitalize()} '{name}' has no file of that name.")
    etag = f'"{work_file.sha256}"'
    headers = {"ETag": etag, "Cache-Control": "private, immutable"}
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if etag in known or "*" in known:
        return Response(status_code=304, headers=headers)
    ctx.fetches.note(work.id, caller)
    kind = "application/json" if work_file.role == ENVELOPE else "application/vnd.apache.parquet"
    if work_file.content is not None:
        return Response(work_file.content, media_type=kind, headers=headers)
    url = None if work_file.role == ENVELOPE else ctx.work.shelf.elsewhere(work_file)
    if url is not None:
        return RedirectResponse(url, 307, {"Cache-Control": "no-store"})
    # the file's own time would tell the second of the draw; the document tells the day
    midnight = format_datetime(datetime.fromisoformat(f"{str(work.published)[:10]}T00:00:00+00:00"), usegmt=True)
    path = ctx.work.shelf.local(work_file)
    return ServedFile(path, media_type=kind, headers=headers | {"Last-Modified": midnight})


@plans.get("/populations/{population}/plan", tags=["releases"], responses=problem_responses(409))
def plan(population: str, ctx: Ctx, _: Approver, asked: Annotated[Plan, Query()]) -> PlanOut:
    """What each mechanism would give at each ε, and which to take; made of public and already private facts only."""
    return planned(ctx, population, asked)
