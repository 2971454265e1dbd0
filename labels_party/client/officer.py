"""The privacy officer's calls, and who is told of what happens."""

from __future__ import annotations

from label_dp.client import labels_paths as at
from label_dp.client.asking import asks, members
from label_dp.client.conversation import Conversation, Json, delete, entries, get, post
from label_dp.client.declared import call
from label_dp.schemas.webhook import Webhook


class OfficerCalls:
    """Budget, approvals, erasures, the audit store, webhooks."""

    @call
    def budget(self, population: str) -> Conversation[Json]:
        """The ledger of a population, its ε spent and left."""
        return get(at.BUDGET, population)

    @call
    def approve(self, release: str) -> Conversation[Json]:
        """As the second of four eyes: the release is charged and drawn."""
        return post(at.APPROVE, release)

    @call
    def decline(self, release: str) -> Conversation[Json]:
        """As the second of four eyes: nothing is charged."""
        return post(at.DECLINE, release)

    @call
    def erase(
        self, population: str, example_ids: list[str] | None = None, *, units: list[str] | None = None
    ) -> Conversation[Json]:
        """Ask for the erasure of these examples, or of all examples of these units (persons)."""
        asked = {"example_ids": example_ids, "units": units}
        return post(at.ERASURES, population, body={name: of for name, of in asked.items() if of is not None})

    @asks(Webhook)
    def create_webhook(self, asked: Webhook) -> Conversation[Json]:
        """Have a URL told of events, by default of all. The answer holds the secret, once."""
        return post(at.WEBHOOKS, body=members(asked))

    @call
    def webhooks(self) -> Conversation[list[Json]]:
        """All of them."""
        return entries(at.WEBHOOKS)

    @call
    def delete_webhook(self, webhook: str) -> Conversation[None]:
        """Tell it nothing more."""
        return delete(at.WEBHOOK, webhook)
