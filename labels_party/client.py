"""An advertiser's backend in Python: the labels party's REST interface with chunks, retries and typed errors.

`LabelsPartyClient` blocks, `AsyncLabelsPartyClient` has the same methods to await. Tables may be Arrow tables,
batches or readers, pandas or polars frames, or iterables of these, which are never held as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeVar

import httpx

from labels_party import client_calls as calls
from labels_party.client_answers import AwaitedAnswers, BlockingAnswers
from labels_party.client_calls import Json, Mode, Told, telling
from shared.errors import RemoteProblem
from shared.service.remote import Awaited, Blocking, Conversation

if TYPE_CHECKING:
    from shared.frames import Frame, Frames

__all__ = ["AsyncLabelsPartyClient", "LabelsPartyClient", "RemoteProblem"]

PARTY = "labels party"
CHUNK_ROWS = 1_000_000
T = TypeVar("T")


def _columns(id_column: str, label_column: str | None = None, unit_column: str | None = None) -> dict[str, str]:
    found = {"example_id": id_column, "label": label_column, "unit": unit_column}
    return {wire: column for wire, column in found.items() if column is not None}


class LabelsPartyClient(BlockingAnswers):
    """`LabelsPartyClient("http://127.0.0.1:8001", api_key)`; a context manager. Every call is safe to repeat.

    Methods return the JSON of the reply (see the service's /docs) and raise RemoteProblem for a refusal, Unavailable
    if the service cannot be reached, InvalidTable for a table without the columns.
    """

    def __init__(
        self,
        url: str,
        api_key: str,
        *,
        chunk_rows: int = CHUNK_ROWS,
        retries: int = 5,
        http: httpx.Client | None = None,
    ) -> None:
        self.chunk_rows = chunk_rows
        self._wire = Blocking(url, api_key, PARTY, retries, http)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._wire.http.close()

    # --- populations and batches --------------------------------------------------------------------------

    def create_population(
        self, name: str, label: str, domain: str | list[float], lifetime_epsilon: str, **rules: Any
    ) -> Json:
        """rules: out_of_domain, missing_label, audiences, unit_column, max_examples_per_unit, four_eyes,
        retention_days, alert_percent."""
        body = {"label": label, "domain": domain, "lifetime_epsilon": lifetime_epsilon} | rules
        return self._run(calls.create_population(name, body))

    def populations(self) -> list[Json]:
        return self._run(calls.listing("populations"))

    def population(self, name: str) -> Json:
        """By name or id."""
        return self._run(calls.get("populations", name))

    def open_batch(
        self,
        population: str,
        presence: str = "id-list",
        *,
        seal_at: str | None = None,
        release: dict[str, Any] | None = None,
    ) -> Json:
        """A new batch. At `seal_at` (UTC, such as "2026-12-01T00:00:00Z") it seals by itself, and is released as the
        template `release` says (members as in `release`)."""
        return self._run(calls.open_batch(population, presence, seal_at, release))

    def batches(self, population: str) -> list[Json]:
        return self._run(calls.listing("populations", population, "batches"))

    def batch(self, batch: str) -> Json:
        return self._run(calls.get("batches", batch))

    def discard(self, batch: str) -> None:
        """Delete an open batch with everything in it."""
        self._run(calls.delete("batches", batch))

    def reschedule(self, batch: str, seal_at: str | None, release: dict[str, Any] | None = None) -> Json:
        """Move or (None) drop the end of an open batch's conversion window and the release that follows it."""
        return self._run(calls.patch("batches", batch, body={"seal_at": seal_at, "release": release}))

    # --- the advertiser's day -----------------------------------------------------------------------------

    def put_examples(
        self, batch: str, examples: Frame, *, id_column: str = "example_id", unit_column: str | None = None
    ) -> Json:
        """Declare all of the batch's ids at once, before any label."""
        return self._run(calls.put_examples(batch, examples, _columns(id_column, None, unit_column)))

    def add_labels(
        self,
        batch: str,
        labels: Frames,
        *,
        id_column: str = "example_id",
        label_column: str = "label",
        unit_column: str | None = None,
        mode: Mode = "insert",
        progress: bool | Told = False,
    ) -> int:
        """Send labels in chunks; returns how many were accepted.

        `mode="upsert"`: a later record replaces an earlier one, a null label deletes it.
        """
        columns = _columns(id_column, label_column, unit_column)
        with telling(progress, "sending labels") as told:
            return self._run(calls.add_labels(batch, labels, columns, mode, self.chunk_rows, told))

    def delete_labels(self, batch: str, examples: Frame, *, id_column: str = "example_id") -> Json:
        """Take back the labels of these ids (refunds); the ids stay in the batch."""
        return self._run(calls.delete_labels(batch, examples, _columns(id_column)))

    def seal(self, batch: str) -> Json:
        return self._run(calls.post("batches", batch, "seal"))

    def release(self, batch: str, epsilon: str, **options: Any) -> Json:
        """options: mechanism, loss, prior, prior_epsilon, prior_method, clip, clip_quantile with clip_epsilon,
        additional_release."""
        return self._run(calls.post("batches", batch, "releases", body={"epsilon": epsilon} | options))

    def release_state(self, release: str) -> Json:
        return self._run(calls.get("releases", release))

    def releases(self, population: str) -> list[Json]:
        return self._run(calls.listing("populations", population, "releases"))

    def wait(self, release: str, timeout: float = 600.0) -> Json:
        """The release once it is published. Raises Conflict if it failed, Unavailable after `timeout` seconds."""
        return self._run(calls.wait(release, timeout))

    def plan(self, population: str, epsilon: str | list[str], n: int, loss: str = "squared", **options: str) -> Json:
        """What this ε would give by mechanism, from public and already private facts only. options: prior,
        clip_quantile with clip_epsilon."""
        return self._run(calls.get("populations", population, "plan", epsilon=epsilon, n=n, loss=loss, **options))

    # --- the privacy officer ------------------------------------------------------------------------------

    def budget(self, population: str) -> Json:
        return self._run(calls.get("populations", population, "budget"))

    def approve(self, release: str) -> Json:
        return self._run(calls.post("releases", release, "approve"))

    def decline(self, release: str) -> Json:
        return self._run(calls.post("releases", release, "decline"))

    def cancel(self, release: str) -> Json:
        """Take back a release whose draw has not begun; its charge is returned."""
        return self._run(calls.post("releases", release, "cancel"))

    def statement(self, release: str) -> str:
        """The release statement, one HTML page."""
        return self._run(calls.download("releases", release, "statement")).decode("utf-8")

    def erase(self, population: str, example_ids: list[str]) -> Json:
        return self._run(calls.post("populations", population, "erasures", body={"example_ids": example_ids}))

    def purge(self, batch: str) -> Json:
        """Delete the labels of a batch for ever; ledger, digests and messages stay."""
        return self._run(calls.post("batches", batch, "purge"))

    def audit_export(self) -> bytes:
        """The signed export of the audit store."""
        return self._run(calls.download("audit", "export"))

    # --- webhooks -----------------------------------------------------------------------------------------

    def create_webhook(self, url: str, **options: Any) -> Json:
        """options: population, events. The answer holds the secret, once."""
        return self._run(calls.post("webhooks", body={"url": url} | options))

    def webhooks(self) -> list[Json]:
        return self._run(calls.listing("webhooks"))

    def delete_webhook(self, webhook: str) -> None:
        self._run(calls.delete("webhooks", webhook))

    def _run(self, talk: Conversation[T]) -> T:
        return self._wire.run(talk)


class AsyncLabelsPartyClient(AwaitedAnswers):
    """As `LabelsPartyClient`, with methods to await."""

    def __init__(
        self,
        url: str,
        api_key: str,
        *,
        chunk_rows: int = CHUNK_ROWS,
        retries: int = 5,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self.chunk_rows = chunk_rows
        self._wire = Awaited(url, api_key, PARTY, retries, http)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._wire.http.aclose()

    # --- populations and batches --------------------------------------------------------------------------

    async def create_population(
        self, name: str, label: str, domain: str | list[float], lifetime_epsilon: str, **rules: Any
    ) -> Json:
        body = {"label": label, "domain": domain, "lifetime_epsilon": lifetime_epsilon} | rules
        return await self._run(calls.create_population(name, body))

    async def populations(self) -> list[Json]:
        return await self._run(calls.listing("populations"))

    async def population(self, name: str) -> Json:
        return await self._run(calls.get("populations", name))

    async def open_batch(
        self,
        population: str,
        presence: str = "id-list",
        *,
        seal_at: str | None = None,
        release: dict[str, Any] | None = None,
    ) -> Json:
        return await self._run(calls.open_batch(population, presence, seal_at, release))

    async def batches(self, population: str) -> list[Json]:
        return await self._run(calls.listing("populations", population, "batches"))

    async def batch(self, batch: str) -> Json:
        return await self._run(calls.get("batches", batch))

    async def discard(self, batch: str) -> None:
        await self._run(calls.delete("batches", batch))

    async def reschedule(self, batch: str, seal_at: str | None, release: dict[str, Any] | None = None) -> Json:
        return await self._run(calls.patch("batches", batch, body={"seal_at": seal_at, "release": release}))

    # --- the advertiser's day -----------------------------------------------------------------------------

    async def put_examples(
        self, batch: str, examples: Frame, *, id_column: str = "example_id", unit_column: str | None = None
    ) -> Json:
        return await self._run(calls.put_examples(batch, examples, _columns(id_column, None, unit_column)))

    async def add_labels(
        self,
        batch: str,
        labels: Frames,
        *,
        id_column: str = "example_id",
        label_column: str = "label",
        unit_column: str | None = None,
        mode: Mode = "insert",
        progress: bool | Told = False,
    ) -> int:
        columns = _columns(id_column, label_column, unit_column)
        with telling(progress, "sending labels") as told:
            return await self._run(calls.add_labels(batch, labels, columns, mode, self.chunk_rows, told))

    async def delete_labels(self, batch: str, examples: Frame, *, id_column: str = "example_id") -> Json:
        return await self._run(calls.delete_labels(batch, examples, _columns(id_column)))

    async def seal(self, batch: str) -> Json:
        return await self._run(calls.post("batches", batch, "seal"))

    async def release(self, batch: str, epsilon: str, **options: Any) -> Json:
        return await self._run(calls.post("batches", batch, "releases", body={"epsilon": epsilon} | options))

    async def release_state(self, release: str) -> Json:
        return await self._run(calls.get("releases", release))

    async def releases(self, population: str) -> list[Json]:
        return await self._run(calls.listing("populations", population, "releases"))

    async def wait(self, release: str, timeout: float = 600.0) -> Json:
        return await self._run(calls.wait(release, timeout))

    async def plan(
        self, population: str, epsilon: str | list[str], n: int, loss: str = "squared", **options: str
    ) -> Json:
        asked = calls.get("populations", population, "plan", epsilon=epsilon, n=n, loss=loss, **options)
        return await self._run(asked)

    # --- the privacy officer ------------------------------------------------------------------------------

    async def budget(self, population: str) -> Json:
        return await self._run(calls.get("populations", population, "budget"))

    async def approve(self, release: str) -> Json:
        return await self._run(calls.post("releases", release, "approve"))

    async def decline(self, release: str) -> Json:
        return await self._run(calls.post("releases", release, "decline"))

    async def cancel(self, release: str) -> Json:
        return await self._run(calls.post("releases", release, "cancel"))

    async def statement(self, release: str) -> str:
        return (await self._run(calls.download("releases", release, "statement"))).decode("utf-8")

    async def erase(self, population: str, example_ids: list[str]) -> Json:
        return await self._run(calls.post("populations", population, "erasures", body={"example_ids": example_ids}))

    async def purge(self, batch: str) -> Json:
        return await self._run(calls.post("batches", batch, "purge"))

    async def audit_export(self) -> bytes:
        return await self._run(calls.download("audit", "export"))

    # --- webhooks -----------------------------------------------------------------------------------------

    async def create_webhook(self, url: str, **options: Any) -> Json:
        return await self._run(calls.post("webhooks", body={"url": url} | options))

    async def webhooks(self) -> list[Json]:
        return await self._run(calls.listing("webhooks"))

    async def delete_webhook(self, webhook: str) -> None:
        await self._run(calls.delete("webhooks", webhook))

    async def _run(self, talk: Conversation[T]) -> T:
        return await self._wire.run(talk)
