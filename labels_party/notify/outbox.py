"""Outbox: notices are stored in the transaction of their event, and sent later by `sender.py`.

A body holds ids, a state, ε and digests: what the audience of a release or an answer may see, and nothing about
labels. A predictor's answers cause no notices: the asker gets them at once. Seals and their refusals are not events:
they depend on labels, and a URL may belong to anybody.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.schemas.webhook import EVENTS
from labels_party.storage.tables import deliveries, webhooks

RELEASE_PUBLISHED, RELEASE_FAILED, ANSWER_PUBLISHED, ANSWER_FAILED, BUDGET_ALERT, APPROVAL_REQUESTED = EVENTS
TEST = "webhook.test"

PENDING, DELIVERED, GIVEN_UP = "pending", "delivered", "failed"


class Outbox:
    """Notices to webhooks, stored until delivered."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self.clock = clock

    def queue(self, connection: Connection, event: str, population: str, data: dict[str, Any]) -> None:
        """Store a notice of `event` for each webhook that subscribes to it; `data` is JSON, free of label facts."""
        query = sa.select(webhooks.c.id, webhooks.c.events).where(
            sa.or_(webhooks.c.population == population, webhooks.c.population.is_(None))
        )
        for webhook, events in connection.execute(query).all():
            if event in events:
                self.add(connection, webhook, event, data)

    def add(self, connection: Connection, webhook: str, event: str, data: dict[str, Any]) -> str:
        """Store a notice for one webhook; return its id, which the receiver sees as `webhook-id`."""
        now = self.clock().astimezone(UTC)
        notice = "msg_" + secrets.token_hex(12)
        # to the day, as in a manifest: a second could tell how long a draw took
        body = {"type": event, "timestamp": now.strftime("%Y-%m-%dT00:00:00Z"), "data": data}
        row = {"id": notice, "webhook": webhook, "event": event, "body": body, "state": PENDING, "attempts": 0}
        times = {"next_at": now.timestamp(), "created": now.strftime("%Y-%m-%dT%H:%M:%SZ")}
        connection.execute(sa.insert(deliveries).values(**row, **times))
        return notice
