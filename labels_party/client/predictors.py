"""Predictors, which stay at the labels party, and the features they learn from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx

from label_dp.client import labels_paths as at
from label_dp.client.asking import asks, members
from label_dp.client.conversation import Conversation, Json, Request, ask, entries, get, path, post
from label_dp.client.declared import call
from label_dp.client.tables import as_parquet, as_row
from label_dp.client.waiting import until
from label_dp.schemas.predictor import Predictor

if TYPE_CHECKING:
    from label_dp.columnar.frames import Frame


class PredictorCalls:
    """Calls of the owner, and of an audience that asks."""

    @call
    def put_features(self, batch: str, features: Frame, *, id_column: str = "example_id") -> Conversation[Json]:
        """The labels party's own features of a batch's examples; they are stored there and sent nowhere."""
        return ask(as_parquet("PUT", path(at.FEATURES, batch), features, id_column=id_column))

    @asks(Predictor)
    def create_predictor(self, asked: Predictor) -> Conversation[Json]:
        """A model that stays at the labels party and answers queries of `epsilon` each, of `epsilon_cap` in all."""
        return post(at.PREDICTORS, body=members(asked))

    @call
    def predictors(self) -> Conversation[list[Json]]:
        """Those that we may ask; for the owner all."""
        return entries(at.PREDICTORS)

    @call
    def predictor(self, predictor: str) -> Conversation[Json]:
        """How it answers, what a query costs and how many new ones are left."""
        return get(at.PREDICTOR, predictor)

    @call
    def wait_predictor(self, predictor: str, timeout: float = 600.0) -> Conversation[Json]:
        """The predictor once it is trained. Raises Conflict if it failed, Unavailable after `timeout` seconds."""
        return until("ready", "Predictor", at.PREDICTOR, predictor, timeout)

    @call
    def predict(self, predictor: str, query: Json) -> Conversation[bytes]:
        """The signed answer to one query; the same query is answered the same, at no charge. A refusal charges
        nothing. `label_dp.companions.kinds.prediction.open_prediction` verifies it."""
        response: httpx.Response = yield Request("POST", path(at.PREDICT, predictor), body={"query": as_row(query)})
        return response.content

    @call
    def retire_predictor(self, predictor: str) -> Conversation[Json]:
        """Delete what it learned; the answers that it gave stay."""
        return post(at.RETIRE, predictor)
