"""Scores of a batch's examples, and calibrations asked for and read, for tests of both parties."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from fastapi.testclient import TestClient

from label_dp.companions.kinds.calibration import CalibrationAnswer, open_calibration
from label_dp.companions.maps.monotone import MonotoneMap
from label_dp.companions.maps.monotone_grid import MonotoneGrid
from label_dp.companions.maps.scores import ScoreGrid
from label_dp.documents.answer import Answer, AnswerMechanism
from label_dp.documents.kind import REPLACE_ONE
from label_dp.documents.members import PopulationRef
from label_dp.documents.signing import ANSWER_TYPE, SigningKey
from label_dp.domain import Domain
from tests.support.asked import calibration_wish
from tests.support.labels import LabelsParty
from tests.support.unchecked import unchecked


def score_table(labels: pa.Table, seed: int = 1) -> pa.Table:
    """The ids of a label table with scores that rise with the label, and noise."""
    y = labels["label"].to_numpy()
    scores = y / 2 + np.random.default_rng(seed).normal(0, 0.5, len(y))
    return pa.table({"example_id": labels["example_id"], "score": scores})


def two_scores(labels: pa.Table, seed: int = 1) -> pa.Table:
    """As `score_table`, with a second score that rises with the label on a scale of its own."""
    y = labels["label"].to_numpy()
    second = np.exp(y / 2 + np.random.default_rng(seed + 1).normal(0, 1, len(y)))
    return score_table(labels, seed).append_column("score_2", pa.array(second))


def records(table: pa.Table) -> dict[str, Any]:
    return {"records": table.to_pylist()}


def charged(party: LabelsParty, batch: str, table: pa.Table, epsilon: str = "1", **options: Any) -> str:
    """Id of a charged, not yet computed calibration."""
    wish = calibration_wish(epsilon=epsilon, **options)
    kind = party.services.companions.calibration
    _, answer = party.services.work.ask(kind, batch, kind.scored(batch, wish, lambda _: [table]), "test")
    return str(answer["id"])


def calibration(party: LabelsParty, answer: str, audience: str = "features-party") -> CalibrationAnswer:
    """A published one, verified as its receiver does."""
    envelope = party.services.work.envelope(answer)
    return open_calibration(envelope, party.services.key.public, audience)


def published(client: TestClient, answer: str) -> dict[str, Any]:
    end = time.monotonic() + 120
    while (state := client.get(f"/v1/answers/{answer}").json())["state"] not in ("published", "failed"):
        assert time.monotonic() < end, state
        time.sleep(0.02)
    assert state["state"] == "published", state
    return dict(state)


def signed(
    key: SigningKey,
    values: npt.NDArray[np.float64],
    breakpoints: list[int],
    grid: str = "0:10:100",
    **changes: Any,
) -> bytes:
    """The envelope of a calibration made by hand, so that each of its parts can be wrong on purpose."""
    found = MonotoneMap(ScoreGrid.parse(grid).size, np.array(breakpoints, np.int64), np.asarray(values, np.float64))
    members: dict[str, Any] = {
        "kind": "calibration",
        "id": "ans_1",
        "batch": "bat_2",
        "population": PopulationRef(id="pop_1", name="shop", label="revenue"),
        "audiences": ["features-party"],
        "key_id": key.public.id,
        "created": "2026-11-20",
        "n": 100,
        "domain": Domain.parse("0:10").as_json(),
        "out_of_domain": "clip",
        "missing_label": None,
        "parameters": {"loss": "squared", "shape": "monotone", "options": {}, "scores": grid, "scores_2": None},
        "mechanism": AnswerMechanism(name="isotonic", facts={"levels": 3}),
        "epsilon": {"clip": "0", "prior": "0", "randomize": "0.5", "total": "0.5", "delta": "0"},
        "epsilon_spent": "0.5",
        "epsilon_lifetime": "10",
        "chain_head": {"day": "2026-11-20", "digest": "cd" * 32},
        "adjacency": REPLACE_ONE,
        "result": {"map": found.as_json()},
        "salt": "5a" * 16,
    }
    document = unchecked(Answer, **members | changes)
    return key.sign(ANSWER_TYPE, document)


TWO_SCORES = {"loss": "squared", "shape": "grid", "options": {"cells": "2x3"}, "scores": "0:10:100"}
TWO_SCORES |= {"scores_2": "0:1:10"}


def grid_map(values: Any = ((0.0, 1.0, 2.5), (0.5, 4.0, 9.0))) -> MonotoneGrid:
    """Of scores 0:10:100 and 0:1:10, cut at 5, and at 0.3 and 0.6."""
    return MonotoneGrid((100, 10), (np.array([50]), np.array([3, 6])), np.array(values))


def signed_grid(key: SigningKey, **changes: Any) -> bytes:
    """As `signed`, of two scores."""
    given = {"parameters": TWO_SCORES, "result": {"map": grid_map().as_json()}} | changes
    return signed(key, np.array([1.0]), [], **given)
