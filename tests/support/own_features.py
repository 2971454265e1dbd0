"""A labels party whose examples of large labels lie in a rectangle of two features, and signed answers about them."""

from __future__ import annotations

import time
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
from fastapi.testclient import TestClient

from label_dp.documents.answer import Answer, AnswerMechanism
from label_dp.documents.kind import IN_PARTS, REPLACE_ONE, WHOLE_EXAMPLE
from label_dp.documents.members import PopulationRef
from label_dp.documents.signing import ANSWER_TYPE, SigningKey
from tests.support.labels import LabelsParty
from tests.support.unchecked import unchecked

N = 1500
THRESHOLD = 5
NUMBERS: list[dict[str, Any]] = [{"name": "x", "range": [0, 10]}, {"name": "y", "range": [0, 10]}]
FEATURES: list[dict[str, Any]] = [*NUMBERS, {"name": "kind", "values": ["a", "b", "c"]}]
RECTANGLE: dict[str, Any] = {"epsilon": "4", "threshold": THRESHOLD, "features": NUMBERS}
MODEL: dict[str, Any] = {"epsilon": "4", "features": FEATURES}
PLURAL = {"rectangle": "rectangles", "linear-model": "linear-models"}
BODY = {"rectangle": RECTANGLE, "linear-model": MODEL}


def tables(n: int = N, seed: int = 0, prefix: str = "c") -> tuple[pa.Table, pa.Table]:
    """Labels, 8 where 2 < x < 8 and 3 < y < 9, else 2; and features, in another order and with ids beyond those."""
    rng = np.random.default_rng(seed)
    x, y, kind = rng.uniform(0, 10, n), rng.uniform(0, 10, n), rng.integers(0, 3, n)
    label = np.where((x > 2) & (x < 8) & (y > 3) & (y < 9), 8.0, 2.0)
    ids = [f"{prefix}-{i:05d}" for i in range(n)]
    order = rng.permutation(n)
    features = pa.table({"example_id": ids, "x": x, "y": y, "kind": [FEATURES[2]["values"][k] for k in kind]})
    strangers = pa.table({"example_id": ["stranger"], "x": [1.0], "y": [1.0], "kind": ["a"]})
    return pa.table({"example_id": ids, "label": label}), pa.concat_tables([features.take(order), strangers])


def sealed(party: LabelsParty, labels: pa.Table, features: pa.Table | None, **rules: Any) -> str:
    """Id of a sealed batch in a population with a lifetime δ, its features stored."""
    body = {"name": "shop", "label": "revenue", "domain": "0:10"}
    body |= {"lifetime_epsilon": "10", "lifetime_delta": "0.00001"}
    made = party.client().post("/v1/populations", json=body | rules)
    assert made.status_code == 201, made.text
    opened = party.client().post(f"/v1/populations/{made.json()['id']}/batches", json={"presence": "public"})
    batch = str(opened.json()["id"])
    party.services.intake.add_labels(batch, labels, owner=True)
    party.services.sealer.seal(batch, "test")
    if features is not None:
        party.services.companions.features.put(batch, features)
    return batch


def post(client: TestClient, batch: str, kind: str, plan: str = "", **changes: Any) -> httpx.Response:
    return client.post(f"/v1/batches/{batch}/{PLURAL[kind]}{plan}", json=BODY[kind] | changes)


def document(client: TestClient, kind: str, answer: str) -> bytes:
    """The signed document, once it is published."""
    end = time.monotonic() + 120
    while (state := client.get(f"/v1/answers/{answer}").json())["state"] != "published":
        assert time.monotonic() < end, state
        assert state["state"] != "failed", state
        time.sleep(0.05)
    return client.get(f"/v1/answers/{answer}/document").content


ADJACENCY = {"median": REPLACE_ONE, "prediction": IN_PARTS, "rectangle": WHOLE_EXAMPLE, "linear-model": WHOLE_EXAMPLE}


def signed(key: SigningKey, kind: str, parameters: dict[str, Any], result: dict[str, Any], **changes: Any) -> bytes:
    """An answer that says whatever it is told to, signed."""
    members: dict[str, Any] = {
        "kind": kind,
        "id": "ans_1",
        "batch": "bat_2",
        "population": PopulationRef(id="pop_1", name="shop", label="revenue"),
        "audiences": ["features-party"],
        "key_id": key.public.id,
        "created": "2026-11-20",
        "n": 100,
        "domain": {"range": "0:10:1"},
        "out_of_domain": "clip",
        "missing_label": None,
        "parameters": parameters,
        "mechanism": AnswerMechanism(name="test"),
        "epsilon": {"clip": "0", "prior": "0", "randomize": "0.5", "total": "0.5", "delta": "0"},
        "epsilon_spent": "0.5",
        "epsilon_lifetime": "10",
        "chain_head": {"day": "2026-11-20", "digest": "cd" * 32},
        "adjacency": ADJACENCY[kind],
        "result": result,
        "salt": "5a" * 16,
    }
    made = unchecked(Answer, **members | changes)
    return key.sign(ANSWER_TYPE, made)
