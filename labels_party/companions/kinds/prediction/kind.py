"""A prediction: one query of a predictor, and its answer. Its whole work is one transaction (`queries.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from label_dp.companions.kinds.prediction import PREDICTION
from label_dp.schemas.json_types import JsonObject
from labels_party.companions.kinds.answer import Computed, DocumentKind
from labels_party.companions.kinds.prediction.methods import METHODS, value_of
from labels_party.companions.kinds.prediction.predictors import PredictorRecord, split_of
from labels_party.labels.batches import Batch
from labels_party.ledger.populations import Population
from labels_party.work.kind import AtOnceKind, ChargedWork, PlannedWork, SignedFiles, Work


@dataclass(frozen=True)
class Query:
    """Query of a predictor by its `codes`; `digest` is its keyed identifier. `fact` is the model's output, which
    nobody sees. `by_audience`: who asks; None: the owner."""

    predictor: PredictorRecord
    codes: tuple[int, ...]
    digest: str
    fact: int
    by_audience: str | None


class PredictionKind(DocumentKind[Query], AtOnceKind[Query]):
    """Kind of answer to a query of a predictor."""

    name = PREDICTION
    handed_on = True

    def asker(self, wish: Query) -> str | None:
        return wish.by_audience

    def plan(self, batch: Batch, population: Population, wish: Query) -> PlannedWork:
        plan, by = wish.predictor.plan, wish.by_audience
        parameters = {
            "predictor": wish.predictor.id,
            "method": plan.method,
            "query": plan.features.shown(wish.codes),
            "threshold": plan.threshold,
        }
        details = {"answer": PREDICTION, "predictor": wish.predictor.id, "query": wish.digest}
        audiences = () if by is None else (by,)
        return PlannedWork(PREDICTION, split_of(plan.epsilon), parameters, details, audiences=audiences, by_audience=by)

    def draw(self, paid: ChargedWork, wish: Query) -> SignedFiles:
        plan = wish.predictor.plan
        method = METHODS[plan.method]
        result = {"value": value_of(plan, paid.population.domain, method.draw(plan, wish.fact))}
        computed = Computed(result, plan.method, method.source, method.facts(plan), method.adjacency)
        return self.document(paid, paid.population.audiences, computed)

    def seen(self, described: dict[str, Any], role: str, audience: str | None) -> dict[str, Any]:
        """Filter a query's members by reader: the asker and the owner may see it."""
        if role == "features":
            return described | {"audiences": [audience]}
        if role in ("auditor", "approver"):
            return described | {"parameters": {k: v for k, v in described["parameters"].items() if k != "query"}}
        return described

    def event(self, work: Work) -> JsonObject:
        return super().event(work) | {"predictor": work.plan["predictor"]}
