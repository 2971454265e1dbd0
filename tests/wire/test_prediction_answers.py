"""A prediction among the signed answers: what a receiver refuses before it believes one."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from label_dp.companions.kinds.prediction import open_prediction
from label_dp.documents.answer import Answer, AnswerMechanism
from label_dp.documents.canonical import canonical_bytes
from label_dp.documents.kind import IN_PARTS
from label_dp.documents.members import PopulationRef
from label_dp.documents.signing import ANSWER_TYPE, SigningKey
from label_dp.errors import AudienceMismatch, MalformedAnswer, SignatureInvalid
from tests.support.unchecked import unchecked

KEY = SigningKey.generate()
QUERY = {"x": "3.5", "sector": None}
FACTS: dict[str, str | int | bool | None] = {
    "noise": "discrete Laplace",
    "grid": 1 << 20,
    "parts": 3,
    "scale": "0.6666666666666666",
}
PARAMETERS = {"predictor": "prd_1", "method": "average", "query": QUERY, "threshold": None}


def signed(**changes: Any) -> bytes:
    members: dict[str, Any] = {
        "kind": "prediction",
        "id": "ans_1",
        "batch": "bat_2",
        "population": PopulationRef(id="pop_1", name="shop", label="revenue"),
        "audiences": ["features-party"],
        "key_id": KEY.public.id,
        "created": "2026-11-20",
        "n": 100,
        "domain": {"range": "0:10:1"},
        "out_of_domain": "clip",
        "missing_label": None,
        "parameters": PARAMETERS,
        "mechanism": AnswerMechanism(name="average", facts=FACTS),
        "epsilon": {"clip": "0", "prior": "0", "randomize": "0.5", "total": "0.5", "delta": "0"},
        "epsilon_spent": "0.5",
        "chain_head": {"day": "2026-11-20", "digest": "cd" * 32},
        "epsilon_lifetime": "3",
        "adjacency": IN_PARTS,
        "result": {"value": "7.5"},
        "salt": "5a" * 16,
    }
    document = unchecked(Answer, **members | changes)
    return KEY.sign(ANSWER_TYPE, document)


def test_a_prediction_is_read() -> None:
    found = open_prediction(signed(), KEY.public, "features-party")
    assert (found.value, found.query) == (7.5, QUERY)
    with_threshold = signed(
        parameters=PARAMETERS | {"threshold": "5", "method": "soft-majority"},
        mechanism=AnswerMechanism(name="soft-majority", facts={"parts": 3}),
        result={"value": "1"},
    )
    assert open_prediction(with_threshold, KEY.public, None).value == 1.0
    listed = signed(domain={"values": ["-3", "0", "7.5"]}, result={"value": "-3"})
    assert open_prediction(listed, KEY.public, None).value == -3.0


LIES: list[dict[str, Any]] = [
    {"result": {}},
    {"result": {"value": 8}},
    {"result": {"value": "8.25", "more": "1"}},
    {"result": {"value": "1e3"}},
    {"result": {"value": "nan"}},
    {"result": {"value": "10.001"}},
    {"result": {"value": "-0.001"}},
    {"result": {"value": "8.25"}, "parameters": PARAMETERS | {"threshold": "5"}},
    {"parameters": PARAMETERS | {"threshold": 5}},
    {"parameters": PARAMETERS | {"query": ["x"]}},
    {"parameters": PARAMETERS | {"query": {"x": 3}}},
    {"parameters": PARAMETERS | {"query": {"x": "3" * 201}}},
    {"parameters": PARAMETERS | {"predictor": ""}},
    {"parameters": PARAMETERS | {"more": "1"}},
    {"parameters": {}},
    {"kind": "calibration"},
]


@pytest.mark.parametrize("lie", LIES, ids=[str(i) for i in range(len(LIES))])
def test_a_signed_lie_is_refused(lie: dict[str, Any]) -> None:
    with pytest.raises(MalformedAnswer):
        open_prediction(signed(**lie), KEY.public, "features-party")


def test_another_audience_key_or_value_is_refused() -> None:
    envelope = signed()
    with pytest.raises(AudienceMismatch):
        open_prediction(envelope, KEY.public, "somebody-else")
    with pytest.raises(SignatureInvalid):
        open_prediction(envelope, SigningKey.generate().public, "features-party")
    opened = json.loads(envelope)
    changed = base64.b64decode(opened["payload"]).replace(b'"7.5"', b'"7.6"')
    opened["payload"] = base64.b64encode(changed).decode()
    with pytest.raises(SignatureInvalid):
        open_prediction(canonical_bytes(opened), KEY.public, "features-party")
