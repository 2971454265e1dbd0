"""A schedule is set, changed, removed and approved; wrong times and templates are refused when they are set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.labels import FakeClock, LabelsParty
from tests.support.schedule import NOON, TEMPLATE, listed, look, open_batch, population, send

pytestmark = pytest.mark.extended


def test_a_schedule_is_changed_and_removed_while_the_batch_is_open(lite: LabelsParty, clock: FakeClock) -> None:
    owner = lite.client()
    population(owner)
    batch = open_batch(owner, release=None, seal_at=None)
    path = f"/v1/batches/{batch}"
    assert owner.patch(path, json={"release": TEMPLATE}).status_code == 422
    assert owner.patch(path, json={"seal_at": "2030-01-01T13:00:00+01:00"}).json()["seal_at"] == NOON
    both = owner.patch(path, json={"release": {"epsilon": "1", "mechanism": "one-bit", "clip": ["0", "5"]}}).json()
    assert (both["seal_at"], both["release_template"]["mechanism"]) == (NOON, "one-bit")
    gone = owner.patch(path, json={"seal_at": None}).json()
    assert (gone["seal_at"], gone["release_template"]) == (None, None)
    send(owner, batch)
    clock.move(days=30)
    lite.services.worker.drain()
    assert look(owner, batch)["state"] == "open"


def test_a_changed_schedule_stops_a_seal_that_is_under_way(
    lite: LabelsParty, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = lite.client()
    population(owner)
    batch = open_batch(owner)
    send(owner, batch)
    clock.move(days=1)
    real: Callable[..., Any] = lite.services.vault.put_run

    def later(*arguments: Any) -> None:
        real(*arguments)
        owner.patch(f"/v1/batches/{batch}", json={"seal_at": "2030-02-01T00:00:00Z"})

    monkeypatch.setattr(lite.services.vault, "put_run", later)
    lite.services.worker.drain()
    now = look(owner, batch)
    assert (now["state"], now["schedule_problem"]) == ("open", None)
    clock.move(days=40)
    monkeypatch.undo()
    lite.services.worker.drain()
    assert look(owner, batch)["state"] == "sealed"


def test_a_change_of_nothing_is_refused(lite: LabelsParty) -> None:
    owner = lite.client()
    population(owner)
    batch = open_batch(owner)
    assert owner.patch(f"/v1/batches/{batch}", json={}).status_code == 422


def test_opening_with_a_schedule_is_safe_to_repeat_also_after_its_time(lite: LabelsParty, clock: FakeClock) -> None:
    owner = lite.client()
    population(owner)
    body = {"presence": "public", "seal_at": NOON, "release": TEMPLATE}
    calls = []
    for _ in range(2):
        calls.append(owner.post("/v1/populations/shop/batches", json=body, headers={"Idempotency-Key": "day-1"}))
        clock.move(days=1)
    assert [c.status_code for c in calls] == [201, 201]
    assert calls[0].json() == calls[1].json()


WRONG_TIMES = ["2029-12-31T23:59:59Z", "2030-01-01T00:00:00Z", "2030-01-02T00:00:00", "2030-01-02", "noon", "", "9"]
WRONG_TIMES += ["2030-13-01T00:00:00Z", "0001-01-01T00:00:00+23:00", "9999-12-31T23:59:59-01:00"]


@pytest.mark.parametrize("when", WRONG_TIMES)
def test_wrong_times_are_refused_when_they_are_set(when: str, lite: LabelsParty) -> None:
    owner = lite.client()
    population(owner)
    answer = owner.post("/v1/populations/shop/batches", json={"seal_at": when})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-input")
    assert owner.get("/v1/populations/shop/batches").json() == []


WRONG_TEMPLATES: list[tuple[dict[str, Any], str]] = [
    ({"epsilon": "0"}, "invalid-epsilon"),
    ({"epsilon": "3.1"}, "budget-exceeded"),
    ({"epsilon": "1", "mechanism": "magic"}, "invalid-mechanism"),
    ({"epsilon": "1", "loss": "magic"}, "invalid-loss"),
    ({"epsilon": "1", "loss": {"labels": [0, 1], "outputs": [0], "matrix": [[1, 2], [3]]}}, "invalid-loss"),
    ({"epsilon": "1", "prior": "magic"}, "invalid-prior"),
    ({"epsilon": "1", "prior": {"release": "rel_0"}}, "invalid-prior"),
    ({"epsilon": "1", "prior": {"probabilities": [0.5, 0.5]}}, "invalid-prior"),
    ({"epsilon": "1", "prior_epsilon": "1"}, "invalid-epsilon"),
    ({"epsilon": "1", "prior": "uniform", "prior_epsilon": "x"}, "invalid-epsilon"),
    ({"epsilon": "1", "mechanism": "one-bit", "clip": [5, 1]}, "invalid-mechanism"),
    ({"epsilon": "1", "clip": [1, 5]}, "invalid-mechanism"),
    ({"epsilon": "1", "delta": "1"}, "invalid-request"),
]


@pytest.mark.parametrize(("template", "code"), WRONG_TEMPLATES)
def test_wrong_templates_are_refused_when_they_are_set(template: dict[str, Any], code: str, lite: LabelsParty) -> None:
    owner = lite.client()
    population(owner)
    answer = owner.post("/v1/populations/shop/batches", json={"seal_at": NOON, "release": template})
    assert answer.json()["code"] == code
    batch = open_batch(owner)
    assert owner.patch(f"/v1/batches/{batch}", json={"release": template}).json()["code"] == code
    assert look(owner, batch)["release_template"]["epsilon"] == "0.5"


def test_a_second_person_still_approves_what_a_schedule_asked_for(timed: LabelsParty, clock: FakeClock) -> None:
    first, second = timed.client("owner"), timed.client("owner")
    population(first, four_eyes=True)
    batch = open_batch(first)
    send(first, batch)
    clock.move(days=1)
    for _ in range(3):
        assert timed.services.worker.drain() == 0
    (waiting,) = listed(first, batch)
    assert waiting["state"] == "accepted"
    assert look(first, batch)["scheduled_release"] == waiting["id"]
    assert timed.spent(batch) == "0"
    refused = first.post(f"/v1/releases/{waiting['id']}/approve")
    assert refused.json()["code"] == "second-person-needed", refused.text
    assert second.post(f"/v1/releases/{waiting['id']}/approve").status_code == 200
    assert timed.services.worker.drain() == 1
    assert timed.spent(batch) == "0.5"


def test_moving_the_time_does_not_make_a_colleague_the_one_who_asked(timed: LabelsParty, clock: FakeClock) -> None:
    """Else the author of a template could approve it alone, after anybody's innocent change of the time."""
    author, colleague = timed.client("owner"), timed.client("owner")
    population(author, four_eyes=True)
    first, second = open_batch(author), open_batch(author)
    for batch, prefix in ((first, "c"), (second, "d")):
        send(author, batch, prefix=prefix)
        moved = colleague.patch(f"/v1/batches/{batch}", json={"seal_at": "2030-01-01T13:00:00Z"})
        assert moved.status_code == 200, moved.text
    changed = colleague.patch(f"/v1/batches/{second}", json={"release": TEMPLATE | {"epsilon": "0.25"}})
    assert changed.status_code == 200, changed.text
    clock.move(days=1)
    timed.services.worker.drain()
    for batch, asked, other in ((first, author, colleague), (second, colleague, author)):
        (waiting,) = listed(author, batch)
        refused = asked.post(f"/v1/releases/{waiting['id']}/approve")
        assert refused.json().get("code") == "second-person-needed", refused.text
        assert other.post(f"/v1/releases/{waiting['id']}/approve").status_code == 200
