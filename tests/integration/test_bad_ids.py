"""Bad, repeated and unlisted example ids: named by row, and nothing half-stored."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.desk import Desk


@pytest.mark.parametrize("bad", ["", None, 1.5, True, ["a"], {"a": 1}, "x" * 513, "\ud800"])
def test_a_bad_id_is_named_by_row(bad: Any, desk: Desk) -> None:
    before = desk.state()
    problem = desk.refused(desk.send(["a", bad], [73.194, 73.194]), "invalid-rows", "x" * 50, "73.194")
    assert [(r["row"], r["field"]) for r in problem["rows"]] == [(2, "example_id")]
    assert desk.state() == before


def test_an_id_twice_in_one_upload_is_refused_whatever_its_labels_say(desk: Desk) -> None:
    before = desk.state()
    answers = [desk.send(["a", "b", "a"], [7, 8, again]) for again in (7, 9)]
    for answer in answers:
        assert [r["row"] for r in desk.refused(answer, "invalid-rows")["rows"]] == [3]
    assert answers[0].content == answers[1].content
    assert desk.state() == before


def test_a_number_and_its_text_are_one_id(desk: Desk) -> None:
    desk.refused(desk.send([7, "7"], [1, 2]), "invalid-rows")


def test_an_id_again_in_another_upload_is_refused_whatever_its_label_says(desk: Desk) -> None:
    assert desk.send(["a", "b"], [7, 8]).status_code == 200
    before = desk.state()
    answers = [desk.send(["c", "b"], [1, again]) for again in (8, 9)]
    for answer in answers:
        problem = desk.refused(answer, "duplicate-id", status=409)
        assert [(r["row"], r["field"]) for r in problem["rows"]] == [(2, "example_id")]
    assert answers[0].content == answers[1].content
    assert desk.state() == before


def test_an_id_that_is_not_listed_is_refused(desk: Desk) -> None:
    batch = desk.open(desk.population, "id-list")
    assert desk.client.put(f"/v1/batches/{batch}/examples", json={"example_id": ["a", "b"]}).status_code == 200
    before = desk.state()
    problem = desk.refused(desk.send(["a", "stranger-73"], [1, 73.194], batch), "invalid-rows", "stranger-73", "73.194")
    assert [r["row"] for r in problem["rows"]] == [2]
    assert desk.state() == before
