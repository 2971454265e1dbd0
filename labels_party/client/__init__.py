"""An advertiser's backend in Python: the labels party's REST interface with chunks, retries and typed errors.

`LabelsPartyClient` blocks, `AsyncLabelsPartyClient` has the same methods to await. Tables may be Arrow tables,
batches or readers, pandas or polars frames, or iterables of these, which are never in memory as a whole. Methods take
the members of a request as keywords or as an instance of its schema (`label_dp.schemas`).
"""

from __future__ import annotations

from typing import Generic, TypeVar

import httpx

from label_dp.client.declared import AwaitedClient, BlockingClient
from label_dp.client.peer import RETRIES
from label_dp.client.published import AuditCalls, PublishedCalls
from label_dp.errors import RemoteProblem
from labels_party.client.answers import AnswerCalls
from labels_party.client.batches import BatchCalls
from labels_party.client.officer import OfficerCalls
from labels_party.client.predictors import PredictorCalls
from labels_party.client.releases import ReleaseCalls

__all__ = ["AsyncLabelsPartyClient", "LabelsPartyClient", "RemoteProblem"]

CHUNK_ROWS = 1_000_000
H = TypeVar("H", httpx.Client, httpx.AsyncClient)


class LabelsPartyCalls(
    BatchCalls, ReleaseCalls, AnswerCalls, PredictorCalls, OfficerCalls, AuditCalls, PublishedCalls, Generic[H]
):
    """All calls of a labels party."""

    party = "labels party"

    def __init__(
        self, url: str, api_key: str, *, chunk_rows: int = CHUNK_ROWS, retries: int = RETRIES, http: H | None = None
    ) -> None:
        super().__init__(url, api_key, retries=retries, http=http)  # type: ignore[call-arg]  # a client comes last
        self.chunk_rows = chunk_rows


class LabelsPartyClient(LabelsPartyCalls[httpx.Client], BlockingClient):
    """Client and context manager: `LabelsPartyClient("http://127.0.0.1:8001", api_key)`. Every call is safe to repeat.

    Methods return the JSON of the reply (see the service's /docs) and raise RemoteProblem for a refusal, Unavailable
    if the service cannot be reached, InvalidTable for a table without the columns, InvalidRequest for a member that
    breaks a rule of its schema.
    """


class AsyncLabelsPartyClient(LabelsPartyCalls[httpx.AsyncClient], AwaitedClient):
    """Client as `LabelsPartyClient`, with methods to await."""
