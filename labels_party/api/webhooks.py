"""Webhooks: who is told of publications, budget alerts and requests for approval."""

from __future__ import annotations

from typing import Any, cast

from fastapi import Request, Response
from sqlalchemy.engine import Connection

from label_dp.actors import with_names
from label_dp.http.filters import Limit
from label_dp.http.json_bodies import JsonRouter
from label_dp.http.route_docs import PROBLEM_RESPONSES, problem_responses
from label_dp.schemas.replies import DeliveryOut, NewWebhookOut, WebhookOut
from label_dp.schemas.webhook import Webhook
from label_dp.store.idempotency import Reply
from labels_party.api.context import Auditor, Ctx, IdempotencyKey, Owner, idempotent, to_the_day

router = JsonRouter(prefix="/v1/webhooks", tags=["webhooks"], responses=PROBLEM_RESPONSES)


@router.post("", status_code=201, responses=problem_responses(409, 413))
def create_webhook(
    body: Webhook, request: Request, response: Response, ctx: Ctx, caller: Owner, key: IdempotencyKey = None
) -> NewWebhookOut:
    """Have a URL told of events: signed by the Standard Webhooks convention, repeated until a day is over."""
    call = idempotent(ctx, caller, key, request.url.path, body.model_dump_json().encode())

    def store(connection: Connection) -> Reply:
        def effect() -> Reply:
            population = None if body.population is None else ctx.populations.get(connection, body.population).id
            webhook = ctx.webhooks.create(connection, body.url, body.events, population, caller.actor)
            return 201, webhook.as_json()

        return call.once(connection, effect)

    response.status_code, answer = ctx.database.write("webhook.create", store)
    response.headers["Location"] = f"/v1/webhooks/{answer['id']}"
    # derived, not part of the remembered answer: no copy of a secret is stored
    return {**cast("WebhookOut", answer), "secret": ctx.webhooks.secret(answer["id"])}


@router.get("")
def list_webhooks(ctx: Ctx, caller: Auditor) -> list[WebhookOut]:
    """All webhooks, without their secrets."""

    def look(connection: Any) -> list[WebhookOut]:
        names = ctx.apikeys.names(connection)
        return [with_names(w.as_json(), names) for w in ctx.webhooks.all(connection)]

    return [to_the_day(w, caller) for w in ctx.database.read("webhook.list", look)]


@router.get("/{webhook}")
def get_webhook(webhook: str, ctx: Ctx, caller: Auditor) -> WebhookOut:
    """A webhook: its URL and its events."""

    def look(connection: Any) -> WebhookOut:
        return with_names(ctx.webhooks.get(connection, webhook).as_json(), ctx.apikeys.names(connection))

    return to_the_day(ctx.database.read("webhook.get", look), caller)


@router.delete("/{webhook}", status_code=204, responses=problem_responses(413))
def delete_webhook(webhook: str, ctx: Ctx, _: Owner) -> None:
    """Forget it, with the notices that were not delivered yet."""
    ctx.database.write("webhook.delete", lambda c: ctx.webhooks.delete(c, webhook))


@router.get("/{webhook}/deliveries")
def deliveries(webhook: str, ctx: Ctx, _: Owner, limit: Limit = 200) -> list[DeliveryOut]:
    """The newest notices: delivered, pending (with what went wrong last), or failed for good."""
    return ctx.database.read("webhook.deliveries", lambda c: ctx.webhooks.deliveries(c, webhook, limit))


@router.post("/{webhook}/test", status_code=202, responses=problem_responses(413))
def send_test(webhook: str, ctx: Ctx, _: Owner) -> DeliveryOut:
    """Queue a notice of the event webhook.test; its delivery tells what came of it."""

    def queue(connection: Connection) -> DeliveryOut:
        return ctx.webhooks.delivery(connection, ctx.webhooks.test(connection, webhook))

    queued = ctx.database.write("webhook.test", queue)
    ctx.sender.wake()
    return queued
