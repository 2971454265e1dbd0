"""A labels party with a sealed batch, features of its examples and predictors of them; small learning problems."""

from __future__ import annotations

import base64
import itertools
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from label_dp.domain import Domain
from labels_party.companions.kinds.prediction.methods import PredictorPlan
from labels_party.companions.kinds.prediction.plan import make_plan
from tests.support.asking import predictor as parse_predictor
from tests.support.labels import LabelsParty

SECTORS = ("a", "b", "c")
NUMBERS = itertools.count()
FEATURES: list[dict[str, Any]] = [{"name": "x", "range": [0, 10]}, {"name": "sector", "values": list(SECTORS)}]
QUERY = {"x": 3.5, "sector": "b"}
METHODS: dict[str, dict[str, Any]] = {
    "soft-majority": {"threshold": 5},
    "average": {},
    "stable-ridge": {},
    "stable-logistic": {"threshold": 5},
    "walk": {"threshold": 5, "features": FEATURES[:1]},
}


def fresh_name() -> str:
    """For a population, and a label, of its own."""
    return f"population {next(NUMBERS)}"


def tables(n: int = 120, seed: int = 0) -> tuple[pa.Table, pa.Table]:
    """Labels 0 … 10 that follow from the features, but for noise; and the features."""
    r = np.random.default_rng(seed)
    x, sector = r.uniform(0, 10, n), r.integers(0, len(SECTORS), n)
    y = np.clip(np.rint(x + sector - 1 + r.normal(size=n)), 0, 10)
    ids = [f"c-{i:05d}" for i in range(n)]
    features = {"example_id": ids, "x": x, "sector": [SECTORS[s] for s in sector]}
    return pa.table({"example_id": ids, "label": y}), pa.table(features)


def with_features(party: LabelsParty, labels: pa.Table, features: pa.Table, **rules: Any) -> str:
    """Id of a sealed batch whose features are stored."""
    batch = party.sealed_batch(labels, **rules)
    party.services.companions.features.put(batch, features)
    return batch


def made(
    party: LabelsParty, batch: str, method: str = "average", epsilon: str = "0.5", cap: str = "2", **more: Any
) -> str:
    """Id of a trained predictor."""
    options = {"features": FEATURES} | METHODS.get(method, {}) | {"additional_release": True} | more
    asked = parse_predictor(method=method, epsilon=epsilon, epsilon_cap=cap, **options)
    _, answer = party.services.companions.predictors.create(batch, asked, "test")
    end = time.monotonic() + 120
    while (
        not party.services.companions.predictors.train(answer["id"])
        and described(party, answer["id"])["state"] != "ready"
    ):
        assert time.monotonic() < end, described(party, answer["id"])  # a worker was quicker, and is at it
        time.sleep(0.02)
    return str(answer["id"])


def described(party: LabelsParty, predictor: str) -> dict[str, Any]:
    found = party.services.database.read("test", lambda c: party.services.companions.predictors.list(c, None))
    return next(p for p in found if p["id"] == predictor)


def learned(party: LabelsParty, batch: str) -> list[Path]:
    """What predictors of a batch learned, on disk."""
    return sorted((party.services.home.labels / batch).glob("predictor-*"))


def payload(envelope: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(base64.b64decode(json.loads(envelope)["payload"]))
    return found


def plan_of(method: str, n: int, domain: str = "0:1", epsilon: str = "1", **more: Any) -> PredictorPlan:
    """A plan without a service."""
    features = [{"name": "x", "range": [0, 10]}]
    options: dict[str, Any] = {"features": features}
    if method not in ("average", "stable-ridge"):
        options["threshold"] = "1"
    asked = parse_predictor(method=method, epsilon=epsilon, epsilon_cap=epsilon, **(options | more))
    return make_plan(asked, Domain.parse(domain), n)


def ask(party: LabelsParty, predictor: str, query: dict[str, Any] | None = None, audience: str | None = None) -> Any:
    """One query, by default the usual one."""
    return party.services.companions.queries.predict(predictor, QUERY if query is None else query, "test", audience)


def events(party: LabelsParty, kind: str, batch: str) -> list[Any]:
    return party.services.database.read("t", lambda c: party.services.audit.events(c, kind=kind, batch=batch))


def of_batch(party: LabelsParty, batch: str) -> list[dict[str, Any]]:
    """Its predictors, as they are listed."""
    return party.services.database.read("t", lambda c: party.services.companions.predictors.list(c, None, batch))
