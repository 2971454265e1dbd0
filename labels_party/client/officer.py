"""Calls of the privacy officer, and webhooks."""

from __future__ import annotations

from typing import cast

from label_dp.client import labels_paths as at
from label_dp.client.asking import asks, members
from label_dp.client.conversation import Conversation, Json, Request, ask, delete, entries, get, path, post
from label_dp.client.declared import call
from label_dp.schemas.population import People
from label_dp.schemas.webhook import Webhook


class OfficerCalls:
    """Budget, approvals, erasures, the audit store, webhooks."""

    @call
    def budget(self, population: str) -> Conversation[Json]:
        """Return the ledger of a population: ε spent and left."""
        return get(at.BUDGET, population)

    @asks(People)
    def create_people(self, asked: People) -> Conversation[Json]:
        """Declare a body of people: one lifetime ε of a person over all populations that name it."""
        return post(at.PEOPLE, body=members(asked))

    @call
    def people(self) -> Conversation[list[Json]]:
        """List all bodies of people."""
        return entries(at.PEOPLE)

    @call
    def people_budget(self, people: str) -> Conversation[Json]:
        """Return what a person has spent at most over all label columns of a body, and what is left."""
        return get(at.PEOPLE_BUDGET, people)

    @call
    def erase_people(
        self, people: str, example_ids: list[str] | None = None, *, units: list[str] | None = None
    ) -> Conversation[list[Json]]:
        """Ask for an erasure, as `erase` does, in every population of a body of people."""
        requests = {"example_ids": example_ids, "units": units}
        body = {name: of for name, of in requests.items() if of is not None}
        return cast("list[Json]", (yield from ask(Request("POST", path(at.PEOPLE_ERASURES, people), body=body))))

    @call
    def approve(self, release: str) -> Conversation[Json]:
        """Approve a release as the second person: it is charged and drawn."""
        return post(at.APPROVE, release)

    @call
    def decline(self, release: str) -> Conversation[Json]:
        """Decline a release as the second person: nothing is charged."""
        return post(at.DECLINE, release)

    @call
    def erase(
        self, population: str, example_ids: list[str] | None = None, *, units: list[str] | None = None
    ) -> Conversation[Json]:
        """Ask for the erasure of these examples, or of all examples of these units (persons)."""
        requests = {"example_ids": example_ids, "units": units}
        return post(at.ERASURES, population, body={name: of for name, of in requests.items() if of is not None})

    @asks(Webhook)
    def create_webhook(self, asked: Webhook) -> Conversation[Json]:
        """Register a URL for notices of events, by default of all. Only this reply holds the secret."""
        return post(at.WEBHOOKS, body=members(asked))

    @call
    def webhooks(self) -> Conversation[list[Json]]:
        """List all webhooks."""
        return entries(at.WEBHOOKS)

    @call
    def delete_webhook(self, webhook: str) -> Conversation[None]:
        """Delete a webhook and its notices."""
        return delete(at.WEBHOOK, webhook)
