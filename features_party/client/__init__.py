"""A publisher's backend in Python: the features party's REST interface with retries and typed errors.

`FeaturesPartyClient` blocks, `AsyncFeaturesPartyClient` has the same methods to await. Tables may be Arrow tables,
pandas or polars frames. A training is taken as keywords or as an instance of its schema (`label_dp.schemas`).
"""

from __future__ import annotations

from features_party.client.inputs import InputCalls
from features_party.client.models import ModelCalls
from features_party.client.trainings import TrainingCalls
from label_dp.client.declared import AwaitedClient, BlockingClient
from label_dp.client.published import AuditCalls
from label_dp.errors import RemoteProblem

__all__ = ["AsyncFeaturesPartyClient", "FeaturesPartyClient", "RemoteProblem"]


class FeaturesPartyCalls(InputCalls, TrainingCalls, ModelCalls, AuditCalls):
    """All calls of a features party."""

    party = "features party"


class FeaturesPartyClient(FeaturesPartyCalls, BlockingClient):
    """`FeaturesPartyClient("http://127.0.0.1:8002", api_key)`; a context manager. Every call is safe to repeat.

    Methods return the JSON of the reply (see the service's /docs) and raise RemoteProblem for a refusal, Unavailable
    if the service cannot be reached, InvalidRequest for a member that breaks a rule of its schema.
    """


class AsyncFeaturesPartyClient(FeaturesPartyCalls, AwaitedClient):
    """As `FeaturesPartyClient`, with methods to await; `events` is an asynchronous iterator."""
