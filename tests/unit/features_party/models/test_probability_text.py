"""Metrics of probabilities for people: nothing where labels have more than two values, reasons where there is no
estimate, and a refusal of an edited card."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from features_party.models.card_text import CALIBRATION, PROBABILITIES, probability_rows
from features_party.training.probabilities import judge, probability_members
from label_dp.errors import InvalidFile

Y = np.tile([1.0, 0.0], 50)


def members(rows: int = 100) -> dict[str, Any]:
    return probability_members(judge(np.full(rows, 0.5), 0.5, Y[:rows], np.arange(rows)))


def test_one_line_each() -> None:
    shown = dict(probability_rows(members()))
    assert list(shown) == [*PROBABILITIES.values(), *CALIBRATION.values()]
    assert shown["AUC"] == "0.5 (95 %: 0.5 to 0.5)"
    assert shown["calibration slope"].startswith("not identified: the predictions do not differ")
    few = dict(probability_rows(members(20)))
    assert few["AUC"] == few["Brier score"] == members(20)["auc_why"]
    assert "calibration slope" not in few
    assert probability_rows({"mse": None}) == []


@pytest.mark.parametrize("member", [*PROBABILITIES, "calibration"])
@pytest.mark.parametrize("value", [None, 1, "x", {"estimate": "x"}])
def test_an_edited_card_is_a_refusal(member: str, value: object) -> None:
    edited = {name: one for name, one in members().items() if not name.endswith("_why")} | {member: value}
    if (member, value) == ("calibration", None):
        assert probability_rows(edited)  # as where nothing is estimated
        return
    with pytest.raises(InvalidFile, match="damaged"):
        probability_rows(edited)
