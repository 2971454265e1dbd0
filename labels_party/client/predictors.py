"""Calls on predictors, which stay at the labels party, and on the features they learn from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx

from label_dp.client import labels_paths as at
from label_dp.client.asking import asks, members
from label_dp.client.conversation import Conversation, Json, Request, ask, entries, get, path, post, until
from label_dp.client.declared import call
from label_dp.client.tables import as_parquet, as_row
from label_dp.schemas.predictor import Predictor

if TYPE_CHECKING:
    from label_dp.columnar.frames import Frame


class PredictorCalls:
    """Calls of the owner, and of audiences with queries."""

    @call
    def put_features(self, batch: str, features: Frame, *, id_column: str = "example_id") -> Conversation[Json]:
        """Send the labels party's own features of a batch's examples; they are stored there only."""
        return ask(as_parquet("PUT", path(at.FEATURES, batch), features, id_column=id_column))

    @asks(Predictor)
    def create_predictor(self, asked: Predictor) -> Conversation[Json]:
        """Create a model that stays at the labels party; a query costs `epsilon`, all at most `epsilon_cap`."""
        return post(at.PREDICTORS, body=members(asked))

    @call
    def predictors(self) -> Conversation[list[Json]]:
        """List the predictors that the caller may query; for the owner all."""
        return entries(at.PREDICTORS)

    @call
    def predictor(self, predictor: str) -> Conversation[Json]:
        """Return a predictor: its method, the ε of a query, and the number of new queries left."""
        return get(at.PREDICTOR, predictor)

    @call
    def wait_predictor(self, predictor: str, timeout: float = 600.0) -> Conversation[Json]:
        """Wait for the predictor to be trained. Raises Conflict if it failed, Unavailable after `timeout` seconds."""
        return until("ready", "Predictor", at.PREDICTOR, predictor, timeout)

    @call
    def predict(self, predictor: str, query: Json) -> Conversation[bytes]:
        """Return the signed answer to a query. The same query gets the same answer without a charge; a refusal charges
        nothing. `label_dp.companions.kinds.prediction.open_prediction` verifies it."""
        response: httpx.Response = yield Request("POST", path(at.PREDICT, predictor), body={"query": as_row(query)})
        return response.content

    @call
    def retire_predictor(self, predictor: str) -> Conversation[Json]:
        """Delete the trained model; its answers stay."""
        return post(at.RETIRE, predictor)
