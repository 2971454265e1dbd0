"""Webhooks: who is told of what, and what became of each notice."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.errors import Conflict, InvalidInput, NotFound
from label_dp.http.webhooks import PREFIX
from label_dp.schemas.replies import DeliveryOut, WebhookOut
from label_dp.schemas.webhook import EVENTS
from labels_party.notify.addresses import AddressRules
from labels_party.notify.outbox import TEST, Outbox
from labels_party.storage.secrets import Secrets
from labels_party.storage.tables import deliveries, webhooks

MOST = 100  # each costs a row per event


@dataclass(frozen=True)
class RegisteredWebhook:
    """Row of the webhooks table."""

    id: str
    population: str | None
    url: str
    events: list[str]
    created: str
    created_by: str

    def as_json(self) -> WebhookOut:
        return {
            "id": self.id,
            "population": self.population,
            "url": self.url,
            "events": self.events,
            "created": self.created,
            "created_by": self.created_by,
        }


class Webhooks:
    """Registration of webhooks."""

    def __init__(self, secrets_: Secrets, rules: AddressRules, outbox: Outbox, clock: Callable[[], datetime]) -> None:
        self.secrets, self.rules, self.outbox, self.clock = secrets_, rules, outbox, clock

    def create(
        self, connection: Connection, url: str, events: list[str] | None, population: str | None, actor: str
    ) -> RegisteredWebhook:
        """Register `url` for `events` (None: all) of a population's id (None: all). Raises InvalidInput, Conflict."""
        self.rules.check(url)
        subscribed = list(EVENTS) if events is None else events
        unknown = [event for event in subscribed if event not in EVENTS]
        if unknown or not subscribed or len(set(subscribed)) != len(subscribed):
            raise InvalidInput(f"Events of a webhook are distinct ones of {', '.join(EVENTS)}.")
        count = connection.execute(sa.select(sa.func.count()).select_from(webhooks)).scalar_one()
        if count >= MOST:
            raise Conflict(f"There are {MOST} webhooks already; delete one that is no longer needed.")
        now = self.clock().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        webhook = RegisteredWebhook("whk_" + secrets.token_hex(12), population, url, subscribed, now, actor)
        connection.execute(sa.insert(webhooks).values(**webhook.__dict__))
        return webhook

    def secret(self, webhook: str) -> str:
        """Return the secret `whsec_…`, derived from the party's secret, so that it is not stored."""
        return PREFIX + base64.b64encode(self.secrets.derive("webhook:" + webhook, 32)).decode("ascii")

    def get(self, connection: Connection, webhook: str) -> RegisteredWebhook:
        row = webhook.isprintable() and connection.execute(sa.select(webhooks).where(webhooks.c.id == webhook)).first()
        if not row:
            raise NotFound(f"There is no webhook '{webhook}'.")
        return RegisteredWebhook(**row._mapping)

    def all(self, connection: Connection) -> list[RegisteredWebhook]:
        query = sa.select(webhooks).order_by(webhooks.c.created, webhooks.c.id)
        return [RegisteredWebhook(**row._mapping) for row in connection.execute(query)]

    def delete(self, connection: Connection, webhook: str) -> None:
        """Delete a webhook and its notices, also undelivered ones. Raises NotFound."""
        self.get(connection, webhook)
        connection.execute(sa.delete(deliveries).where(deliveries.c.webhook == webhook))
        connection.execute(sa.delete(webhooks).where(webhooks.c.id == webhook))

    def test(self, connection: Connection, webhook: str) -> str:
        """Queue a test notice; return its id. Raises NotFound."""
        return self.outbox.add(connection, self.get(connection, webhook).id, TEST, {"webhook": webhook})

    def deliveries(self, connection: Connection, webhook: str, limit: int = 100) -> list[DeliveryOut]:
        """List the newest notices and their outcomes. Raises NotFound."""
        self.get(connection, webhook)
        t = deliveries
        query = sa.select(t).where(t.c.webhook == webhook).order_by(t.c.created.desc(), t.c.id).limit(limit)
        return [_shown(row) for row in connection.execute(query)]

    def delivery(self, connection: Connection, notice: str) -> DeliveryOut:
        return _shown(connection.execute(sa.select(deliveries).where(deliveries.c.id == notice)).one())


def _shown(row: sa.Row[Any]) -> DeliveryOut:
    return {
        "id": row.id,
        "event": row.event,
        "state": row.state,
        "attempts": row.attempts,
        "created": row.created,
        "delivered": row.delivered,
        "failure": row.failure,
        "body": row.body,
    }
