"""Calls on releases: plan, request, wait, cancel."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from label_dp.client import labels_paths as at
from label_dp.client.asking import asks, members
from label_dp.client.conversation import Conversation, Json, content, entries, get, post, until
from label_dp.client.declared import call
from label_dp.schemas.numbers import Decimalish
from label_dp.schemas.plan import Plan
from label_dp.schemas.release import Release


class PlanOf(Plan):
    """Plan for one or several ε."""

    model_config = ConfigDict(strict=True)  # members are Python's values here, not the texts of a query

    epsilon: Decimalish | list[Decimalish] = Field(description="ε to plan for, one or several.")  # type: ignore[assignment]  # a query repeats a member that has several values


class ReleaseCalls:
    """Calls of the owner on messages."""

    @asks(Release)
    def release(self, batch: str, asked: Release) -> Conversation[Json]:
        """Charge a sealed batch and have its message drawn."""
        return post(at.RELEASES_OF_BATCH, batch, body=members(asked))

    @call
    def releases(self, population: str) -> Conversation[list[Json]]:
        """List the releases of a population."""
        return entries(at.RELEASES_OF, population)

    @call
    def wait(self, release: str, timeout: float = 600.0) -> Conversation[Json]:
        """Wait for the release to be published. Raises Conflict if it failed, Unavailable after `timeout` seconds."""
        return until("published", "Release", at.RELEASE, release, timeout)

    @asks(PlanOf)
    def plan(self, population: str, asked: PlanOf) -> Conversation[Json]:
        """Plan an ε by mechanism for n examples or a batch's, from public and already private facts only.

        `prior` "latest" plans with the carried-over prior. `clip_quantile` goes with `clip_epsilon`.
        """
        return get(at.PLAN, population, **members(asked))

    @call
    def cancel(self, release: str) -> Conversation[Json]:
        """Cancel a release whose draw has not begun; its charge is returned."""
        return post(at.CANCEL, release)

    @call
    def message_file(self, release: str, name: str) -> Conversation[bytes]:
        """Return a file of a published message by its name in the manifest; large ones are better streamed."""
        return content(at.FILE, release, name)

    @call
    def statement(self, release: str) -> Conversation[str]:
        """Return the release statement, an HTML page."""
        return (yield from content(at.STATEMENT, release)).decode("utf-8")
