"""What people see of a signed answer, at either party: text, never data; an empty rectangle is said to be empty."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from features_party.cli.show import clipping_text
from features_party.cli.show import show_answer as show_received
from features_party.receive.answers import SignedAnswer
from label_dp.documents.answer import AnswerMechanism
from label_dp.documents.registry import trusted_answer
from labels_party.companions.cli.answers import show_answer
from tests.support.calibrations import signed as signed_map
from tests.support.own_features import signed
from tests.wire.test_own_features_answers import KEY, M_GIVEN, M_RESULT, R_GIVEN, R_RESULT
from tests.wire.test_prediction_answers import FACTS
from tests.wire.test_standalone_median import by_slices

ANSWER: dict[str, Any] = {
    "out": "a.json",
    "answer": "ans_1",
    "kind": "rectangle",
    "batch": "bat_1",
    "population": "shop",
    "label": "eur",
    "examples": 1200,
    "audiences": ["features-party"],
    "epsilon": {"total": "0.5", "delta": "0"},
    "epsilon_spent": "0.5",
    "epsilon_lifetime": "2",
    "chain_head": {"day": "2026-01-02", "digest": "cd" * 32},
    "delta_spent": "0",
    "delta_lifetime": "0",
    "parameters": {"options": {"pieces": 4}, "features": [{"name": "hour"}]},
    "facts": {},
    "unit": {
        "kind": "example",
        "column": None,
        "max_examples": None,
        "epsilon_per_unit": None,
        "examples_beyond": None,
    },
    "labels_key": "signing.pub",
    "key_id": "ed25519:00",
}


@pytest.mark.parametrize(
    ("found", "ends", "says"),
    [
        (True, (9, 2), "ends before it begins"),
        (True, (2, 9), ""),
        (True, (5, 5), ""),  # one place is inside
        (False, (None, 9), "was not found"),
    ],
)
def test_an_empty_rectangle_is_said_to_be_empty(
    found: bool, ends: tuple[int | None, int], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    side = {"name": "hour", "first": ends[0], "last": ends[1], "from": ends[0], "to": ends[1]}
    show_answer(ANSWER | {"found": found, "sides": [side]})
    out = capsys.readouterr().out
    assert ("nothing is inside" in out) == bool(says)
    assert says in out


def test_options_are_read_as_given_and_features_left_to_the_document(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_answer(ANSWER)
    out = capsys.readouterr().out
    assert "pieces=4" in out
    assert "{" not in out
    assert "1,200 examples" in out


@pytest.mark.parametrize(
    ("quantiles", "says"), [(["0.95"], "private quantile 0.95 "), (["0.1", "0.9"], "quantiles 0.1, ")]
)
def test_one_bound_is_of_one_quantile(quantiles: list[str], says: str) -> None:
    clipping = {"bounds": ["0", "60"][-len(quantiles) :], "quantiles": quantiles, "public_domain": "0:400:1"}
    assert says in clipping_text(clipping)


P_GIVEN = {"predictor": "prd_1", "method": "average", "query": {"x": "3.5", "sector": None}, "threshold": None}
RECEIVED: dict[str, tuple[bytes, list[list[str]]]] = {
    "prediction": (
        signed(KEY, "prediction", P_GIVEN, {"value": "7.5"}, mechanism=AnswerMechanism(name="average", facts=FACTS)),
        [
            ["predictor", "prd_1"],
            ["value", "7.5"],
            ["Query"],
            ["x", "3.5"],
            ["sector", "missing, or none of its values"],
        ],
    ),
    "rectangle": (
        signed(KEY, "rectangle", R_GIVEN, R_RESULT),
        [["epsilon per side", "0.125"], ["Inside"], ["x", "2", "5", "0 to 10"], ["y", "-1", "0", "-1 to 1"]],
    ),
    "linear model": (
        signed(KEY, "linear-model", M_GIVEN, M_RESULT),
        [["rule", "uniform"], ["Weights"], ["constant", "0.125"], ["x", "0.5"], ["kind=7", "-4"]],
    ),
    "median": (signed(KEY, "median", {"method": "ranks"}, {"found": True, "median": "5"}), [["median", "5"]]),
    "no median": (
        by_slices({"range": "0:200:1"}, {"found": False, "median": None}, KEY),
        [["median", "none found: too few labels agree at this ε and δ"]],
    ),
    "calibration": (
        signed_map(KEY, np.array([0.5, 2.0, 8.5]), [20, 60]),
        [["shape", "monotone"], ["scores", "0:10:100"], ["values of the map", "3"]],
    ),
}


@pytest.mark.parametrize("case", list(RECEIVED))
def test_what_a_receiver_sees_of_each_kind_is_text(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    envelope, wanted = RECEIVED[case]
    show_received(SignedAnswer(*trusted_answer(envelope, KEY.public, None), envelope))
    out = capsys.readouterr().out
    lines = [re.split(r" {2,}", line.strip()) for line in out.splitlines()]
    assert [line for line in wanted if line not in lines] == []
    assert not set("{}[]") & set(out)
    assert "None" not in out
