"""Releases: planned, asked for, followed, taken back."""

from __future__ import annotations

from shared.client import labels_paths as at
from shared.client.asking import asks, members
from shared.client.conversation import Conversation, Json, content, entries, get, post
from shared.client.declared import call
from shared.client.waiting import until
from shared.schemas.release import Release


class ReleaseCalls:
    """Calls of the owner around messages."""

    @asks(Release)
    def release(self, batch: str, asked: Release) -> Conversation[Json]:
        """Charge a sealed batch and have its message drawn."""
        return post(at.RELEASES_OF_BATCH, batch, body=members(asked))

    @call
    def releases(self, population: str) -> Conversation[list[Json]]:
        """Those of a population."""
        return entries(at.RELEASES_OF, population)

    @call
    def wait(self, release: str, timeout: float = 600.0) -> Conversation[Json]:
        """The release once it is published. Raises Conflict if it failed, Unavailable after `timeout` seconds."""
        return until("published", "Release", at.RELEASE, release, timeout)

    @call
    def plan(
        self,
        population: str,
        epsilon: str | list[str],
        n: int | None = None,
        loss: str = "squared",
        *,
        batch: str | None = None,
        prior: str | None = None,
        clip_quantile: str | None = None,
        clip_epsilon: str | None = None,
    ) -> Conversation[Json]:
        """What this ε would give by mechanism, from public and already private facts only; of n examples, or a batch's.

        `prior` latest: as with the carried-over one. `clip_quantile` goes with `clip_epsilon`.
        """
        bounds = {"clip_quantile": clip_quantile, "clip_epsilon": clip_epsilon}
        return get(at.PLAN, population, epsilon=epsilon, n=n, loss=loss, batch=batch, prior=prior, **bounds)

    @call
    def cancel(self, release: str) -> Conversation[Json]:
        """Take back a release whose draw has not begun; its charge is returned."""
        return post(at.CANCEL, release)

    @call
    def statement(self, release: str) -> Conversation[str]:
        """The release statement, one HTML page."""
        return (yield from content(at.STATEMENT, release)).decode("utf-8")
