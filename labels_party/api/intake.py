"""Populations and batches, from declaration to purge. Events are those of IAB Tech Lab's ECAPI 1.0."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal, cast

from fastapi import Depends, Query, Request, Response
from sqlalchemy.engine import Connection

from label_dp.errors import NotFound
from label_dp.http.calls import LARGE, UPLOAD
from label_dp.http.filters import in_query
from label_dp.http.json_bodies import JsonRouter, quickly
from label_dp.http.route_docs import PROBLEM_RESPONSES, problem_responses
from label_dp.schemas.filters import PopulationFilter
from label_dp.schemas.population import Batch, Schedule
from label_dp.schemas.population import Population as PopulationAsked
from label_dp.schemas.replies import BatchOut, PopulationOut, SetAsideOut
from label_dp.store.apikeys import Principal
from label_dp.store.idempotency import Reply
from labels_party.api.context import (
    Approver,
    Auditor,
    Ctx,
    IdempotencyKey,
    Ingest,
    Lister,
    Owner,
    idempotent,
    to_the_day,
)
from labels_party.api.models import Accepted, DecisionIn, EventsOut, ListingOut
from labels_party.api.upload_docs import IdColumns, LabelColumns, event_docs, upload_docs
from labels_party.api.uploads import Upload, receive, receive_events
from labels_party.labels.batches import INSERT, UPSERT
from labels_party.labels.parsing import ID, LABEL
from labels_party.ledger.populations import Population, declare
from labels_party.work.batch_listing import for_role

router = JsonRouter(prefix="/v1", responses=PROBLEM_RESPONSES)
UPLOADED = problem_responses(409, 413, 415)
Mode = Literal["insert", "upsert"]
Existing = Annotated[
    Literal["refuse", "same"],
    Query(description="same: a population of that name that was declared with the same rules is answered with 200."),
]


@router.post(
    "/populations", status_code=201, tags=["populations"], responses=problem_responses(409, 413), dependencies=[LARGE]
)
def create_population(
    body: PopulationAsked,
    request: Request,
    response: Response,
    ctx: Ctx,
    caller: Owner,
    existing: Existing = "refuse",
    key: IdempotencyKey = None,
) -> PopulationOut:
    """Declare a label column of a body of people: public domain, rules, audiences, lifetime ε per example."""
    population = declare(body)
    asked = body.model_dump_json().encode() + (existing.encode() if existing != "refuse" else b"")
    call = idempotent(ctx, caller, key, request.url.path, asked)

    def effect(connection: Connection) -> Reply:
        found = ctx.populations.declared(connection, population) if existing == "same" else population
        if found.created:
            return 200, found.as_json()
        return 201, ctx.populations.create(connection, population, caller.actor).as_json()

    def store(connection: Connection) -> Reply:
        return call.once(connection, lambda: effect(connection))

    status, answer = ctx.database.write("population.create", store)
    response.status_code = status
    response.headers["Location"] = f"/v1/populations/{answer['id']}"
    return cast("PopulationOut", answer)


@router.get("/populations", tags=["populations"])
def list_populations(
    ctx: Ctx, _: Approver, population_filter: Annotated[PopulationFilter, Depends(in_query(PopulationFilter))]
) -> list[PopulationOut]:
    """All populations, or those of an audience, with their rules."""
    populations = ctx.database.read("population.list", lambda c: ctx.populations.list(c, population_filter))
    return [p.as_json() for p in populations]


@router.get("/populations/{population}", tags=["populations"])
def get_population(population: str, ctx: Ctx, _: Approver) -> PopulationOut:
    """A population by its id or name."""
    return ctx.database.read("population.get", lambda c: ctx.populations.get(c, population)).as_json()


@router.post(
    "/populations/{population}/batches",
    status_code=201,
    tags=["batches"],
    responses=problem_responses(413),
    dependencies=[LARGE],
)
def create_batch(
    population: str,
    request: Request,
    response: Response,
    ctx: Ctx,
    caller: Owner,
    body: Batch | None = None,
    key: IdempotencyKey = None,
) -> BatchOut:
    """Open a batch of examples; with `seal_at` it seals, and releases as `release` says, by itself."""
    wanted = body or Batch()
    call = idempotent(ctx, caller, key, request.url.path, wanted.model_dump_json().encode())

    def look(connection: Connection) -> tuple[Reply | None, Population]:
        return call.earlier(connection), ctx.populations.get(connection, population)

    earlier, found = ctx.database.read("batch.look", look)
    changes = wanted.changes() if earlier is None else {}
    checked = ctx.schedule.check(found, changes) if changes else {}

    def store(connection: Connection) -> Reply:
        def effect() -> Reply:
            batch = ctx.batches.create(connection, found, wanted.presence, wanted.id_prefix)
            return 201, (ctx.schedule.set(connection, batch, checked, caller.actor) if checked else batch).as_json()

        return call.once(connection, effect)

    status, answer = earlier or ctx.database.write("batch.create", store)
    response.status_code = status
    response.headers["Location"] = f"/v1/batches/{answer['id']}"
    return cast("BatchOut", answer)


@router.get("/populations/{population}/batches", tags=["batches"])
def list_batches(population: str, ctx: Ctx, caller: Auditor) -> list[BatchOut]:
    """The batches of a population, the newest last."""

    def look(connection: Connection) -> list[BatchOut]:
        found = ctx.populations.get(connection, population)
        return [b.as_json() for b in ctx.batches.of_population(connection, found.id)]

    return [_shown(b, caller) for b in ctx.database.read("batch.list", look)]


@router.get("/batches/{batch}", tags=["batches"])
def get_batch(batch: str, ctx: Ctx, caller: Approver) -> BatchOut:
    """A batch: its state, its examples, and what follows by itself."""
    return _shown(ctx.database.read("batch.get", lambda c: ctx.batches.get(c, batch))[0].as_json(), caller)


def _shown(described: BatchOut, caller: Principal) -> BatchOut:
    return to_the_day(for_role(described, caller.role), caller)


@router.put(
    "/batches/{batch}/examples",
    tags=["batches"],
    openapi_extra=upload_docs((ID,)),
    responses=UPLOADED,
    dependencies=[UPLOAD],
)
async def put_examples(
    batch: str, request: Request, ctx: Ctx, caller: Lister, columns: IdColumns, key: IdempotencyKey = None
) -> ListingOut:
    """Declare which example ids the batch has, before any label counts; a second list replaces the first.

    In a population with units each comes with its unit, and only the owner sends them.
    """
    owner = caller.role == "owner"

    def work(upload: Upload) -> Reply:
        if not owner:
            _, population = ctx.database.read("batch.get", lambda c: ctx.batches.get(c, batch))
            if caller.audience not in population.audiences:
                raise NotFound(f"There is no batch '{batch}'.")
        return ctx.intake.put_examples(batch, upload.chunks, call=upload.call, may_replace=owner)

    return ListingOut(**await receive(request, ctx, caller, key, batch, columns, work))


async def _labels(
    request: Request, ctx: Ctx, caller: Principal, columns: dict[str, str], mode: str, key: str | None
) -> Mapping[str, Any]:
    batch = request.path_params["batch"]

    def work(upload: Upload) -> Reply:
        chunks = partial(upload.chunks, nulls=mode == UPSERT)
        owner = caller.role == "owner"
        return ctx.intake.add_labels(batch, chunks, call=upload.call, mode=mode, owner=owner)

    return await receive(request, ctx, caller, key, batch, columns, work, inserts=mode == INSERT)


async def _plain_insert(request: Request) -> Mapping[str, Any]:
    return await _labels(
        request, request.app.state.services, request.state.caller, {}, INSERT, request.headers.get("idempotency-key")
    )


@router.post(
    "/batches/{batch}/labels",
    tags=["batches"],
    openapi_extra=upload_docs((ID, LABEL)),
    responses=UPLOADED,
    dependencies=[UPLOAD],
)
@quickly(_plain_insert)
async def add_labels(
    batch: str,
    request: Request,
    ctx: Ctx,
    caller: Ingest,
    columns: LabelColumns,
    mode: Mode = "insert",
    key: IdempotencyKey = None,
) -> Accepted:
    """Add labels to an open batch: all rows or none.

    With `mode=insert` a second record of an id is refused whatever it says, also after a deletion. A key of role
    `ingest` is not told of that, or it would learn which ids have a label: where any upload before had one of its ids,
    its upload is answered alike and set aside as a whole, and the batch's owner decides of it before the seal; of what
    the same key sent before, byte for byte and with the same parameters, nothing counts, and nobody need decide. With
    `mode=upsert` a later record replaces an earlier one, and the label null deletes it. The id stays in the batch
    either way.
    """
    return Accepted(**await _labels(request, ctx, caller, columns, mode, key))


@router.delete(
    "/batches/{batch}/labels",
    tags=["batches"],
    openapi_extra=upload_docs((ID,), note="The ids whose labels are deleted."),
    responses=UPLOADED,
    dependencies=[UPLOAD],
)
async def delete_labels(
    batch: str, request: Request, ctx: Ctx, caller: Ingest, columns: IdColumns, key: IdempotencyKey = None
) -> Accepted:
    """Delete labels of an open batch, as an upsert with the label null does. The ids stay in the batch.

    An id without a label is accepted alike: this call tells nobody which ids have one.
    """

    def work(upload: Upload) -> Reply:
        return ctx.intake.delete_labels(batch, upload.chunks, call=upload.call, owner=caller.role == "owner")

    return Accepted(**await receive(request, ctx, caller, key, batch, columns, work))


@router.delete("/batches/{batch}", status_code=204, tags=["batches"], responses=problem_responses(409, 413))
def discard_batch(batch: str, request: Request, ctx: Ctx, caller: Owner, key: IdempotencyKey = None) -> None:
    """Discard an open batch with everything of it; a sealed one stays."""
    ctx.intake.discard(batch, idempotent(ctx, caller, key, "DELETE " + request.url.path, b""))


async def _plain_events(request: Request) -> Mapping[str, Any]:
    key = request.headers.get("idempotency-key")
    return await receive_events(request, request.app.state.services, request.state.caller, key)


@router.post(
    "/events",
    tags=["batches"],
    openapi_extra=event_docs(),
    responses=problem_responses(400, 409, 413, 415),
    dependencies=[UPLOAD],
)
@quickly(_plain_events)
async def add_events(request: Request, ctx: Ctx, caller: Ingest, key: IdempotencyKey = None) -> EventsOut:
    """Send conversion events: one core event object, an array of them, one a line, or Parquet; all of them or none.

    An event counts in every batch of its data set that was open when it came, by the rule of the batch's population,
    if its example is on the batch's list at the seal. Records with one `id` of a data set are one event, of which the
    members of the later record count; an event without `id` is its own. The answer is the same whatever counts.
    """
    return EventsOut(**await receive_events(request, ctx, caller, key))


@router.get("/batches/{batch}/events", tags=["batches"], responses=problem_responses(409))
def get_event_counts(batch: str, ctx: Ctx, _: Owner) -> dict[str, int]:
    """What became of the events of a sealed batch, by rule; made of raw labels, so for its owner alone."""
    return ctx.sealer.events.counts(batch)


@router.get("/batches/{batch}/set-aside", tags=["batches"])
def list_set_aside(batch: str, ctx: Ctx, _: Owner) -> list[SetAsideOut]:
    """Uploads of keys of role `ingest` with an id that an upload before had; those that wait for a decision first."""
    return ctx.set_aside.listed(batch)


@router.post("/batches/{batch}/set-aside/{upload}", tags=["batches"], responses=problem_responses(409, 413))
def decide_set_aside(
    batch: str, upload: str, body: DecisionIn, request: Request, ctx: Ctx, caller: Owner, key: IdempotencyKey = None
) -> SetAsideOut:
    """Drop such an upload, or let it replace what was there, as `mode=upsert` does. Then the batch can be sealed."""
    call = idempotent(ctx, caller, key, request.url.path, body.model_dump_json().encode(), batch)
    return cast("SetAsideOut", ctx.set_aside.decide(batch, upload, body.decision, caller.actor, call)[1])


@router.post("/batches/{batch}/seal", tags=["batches"], responses=problem_responses(409))
def seal(batch: str, request: Request, ctx: Ctx, caller: Owner, key: IdempotencyKey = None) -> BatchOut:
    """Check ids, missing labels and disjointness, and close the batch for ever."""
    call = idempotent(ctx, caller, key, request.url.path, b"", batch)
    _, answer = ctx.sealer.seal(batch, caller.actor, call)
    return cast("BatchOut", answer)


@router.patch("/batches/{batch}", tags=["batches"], responses=problem_responses(403, 409, 413), dependencies=[LARGE])
def change_schedule(
    batch: str, body: Schedule, request: Request, ctx: Ctx, caller: Owner, key: IdempotencyKey = None
) -> BatchOut:
    """Change or remove when an open batch seals by itself, and what it then releases.

    A refused release of a batch that has sealed already can be changed or removed too, until one is charged.
    """
    data = body.model_dump_json(exclude_unset=True).encode()
    call = idempotent(ctx, caller, key, "PATCH " + request.url.path, data, batch)
    _, answer = ctx.schedule.change(batch, body.changes(), caller.actor, call)
    ctx.worker.wake()
    return cast("BatchOut", answer)


@router.post("/batches/{batch}/purge", tags=["batches"], responses=problem_responses(409, 413))
def purge(batch: str, request: Request, ctx: Ctx, caller: Owner, key: IdempotencyKey = None) -> BatchOut:
    """Delete the labels of a sealed batch for good. Its messages, its ledger and the digests of its ids stay."""
    call = idempotent(ctx, caller, key, request.url.path, b"")
    _, answer = ctx.retention.purge(batch, caller.actor, call)
    return cast("BatchOut", answer)
