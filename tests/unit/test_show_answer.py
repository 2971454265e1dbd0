"""What people see of a signed answer: an empty rectangle is said to be empty, options read as they are given."""

from __future__ import annotations

from typing import Any

import pytest

from features_party.cli.show import clipping_text
from labels_party.cli.answers import show_answer

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
    "delta_spent": "0",
    "delta_lifetime": "0",
    "parameters": {"options": {"pieces": 4}, "features": [{"name": "hour"}]},
    "facts": {},
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


def test_options_read_as_they_are_given_and_features_are_left_to_the_document(
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
