"""The page Plan: there at once, complete soon after, the same as the plan over REST; its sliders."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from label_dp.errors import InvalidInput
from label_dp.pages.sliders import Slider
from label_dp.privacy import Epsilon
from label_dp.schemas.plan import Plan
from labels_party.pages.foresight import Foresight
from labels_party.planning import Question, planned, question
from tests.integration.test_four_eyes import sealed
from tests.support.labels import FakeClock, LabelsParty
from tests.support.pages import Looker, signed_in

pytestmark = pytest.mark.extended

SHOP = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "4"}
PATIENCE = 30.0  # seconds on a busy machine


@pytest.fixture
def person(lite: LabelsParty, monkeypatch: pytest.MonkeyPatch) -> Looker:
    monkeypatch.setattr("labels_party.pages.plan.AROUND", ("0.5", "1"))
    monkeypatch.setattr("labels_party.pages.foresight.PAUSE", 0.01)
    owner = lite.client("owner")
    assert owner.post("/v1/populations", json=SHOP).status_code == 201
    return signed_in(owner)


def until(look: Callable[[], Any]) -> Any:
    """What `look` gives once it gives something."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.05)
    raise AssertionError("nothing came")


def with_or_without(person: Looker, address: str, words: str, there: bool) -> str | None:
    text = person.get(address).text
    return text if (words in text) is there else None


def test_a_plan_is_there_at_once_and_complete_soon_after(lite: LabelsParty, person: Looker) -> None:
    address = "/plan?population=shop&epsilon=1&n=20000"
    first = person.get(address).text
    assert 'data-live="1"' in first
    assert "adds about" in first
    assert "<svg" in first
    assert "Take " not in first
    whole = until(lambda: with_or_without(person, address, "Take ", True))
    advice = planned(lite.services, "shop", Plan(epsilon=["1"], n=20_000))["recommendations"][0]
    assert f"Take {advice['mechanism']} at ε 1" in whole
    assert "The split of ε 1" in whole
    last = until(lambda: with_or_without(person, address, "data-live", False))
    assert "what is recommended" in last  # the curve has its points


def test_the_sliders_stand_where_they_were_put(person: Looker) -> None:
    text = person.get("/plan?population=shop&e=5&s=3").text
    assert 'name="e" type="range" min="0" max="23" value="5"' in text
    assert '<output for="f-e">0.5</output>' in text
    assert '<output for="f-s">10,000</output>' in text
    exact = person.get("/plan?population=shop&epsilon=0.77&n=12345").text
    assert '<output for="f-e">0.77</output>' in exact
    assert "12,345 examples of shop" in exact
    for wrong in ("e=99&s=1", "e=x&s=1", "e=1&s=-1", "epsilon=nonsense&n=5", "epsilon=1&n=nonsense", "epsilon=0&n=5"):
        answer = person.get(f"/plan?population=shop&{wrong}")
        assert answer.status_code == 200
        assert 'role="alert"' in answer.text, wrong


def test_a_form_without_figures_computes_nothing(person: Looker) -> None:
    text = person.get("/plan").text
    assert "<svg" not in text
    assert "data-live" not in text
    assert '<output for="f-s">100,000</output>' in text


def test_the_size_is_at_first_that_of_the_newest_sealed_batch(lite: LabelsParty, person: Looker) -> None:
    sealed(lite.client("owner"), SHOP)
    assert '<output for="f-s">60</output>' in person.get("/plan").text
    assert '<output for="f-s">1,000</output>' in person.get("/plan?population=shop&s=0").text


def test_what_is_foreseen_is_what_is_planned_and_a_failure_is_tried_again(
    lite: LabelsParty, person: Looker, monkeypatch: pytest.MonkeyPatch
) -> None:
    foresight = Foresight()
    wanted = question(lite.services, "shop", Plan(epsilon=["0.5"], n=1_000))
    assert foresight.look(wanted) is None
    foresight.ask(wanted)
    found = until(lambda: foresight.look(wanted))
    assert found == planned(lite.services, "shop", Plan(epsilon=["0.5"], n=1_000))
    other = question(lite.services, "shop", Plan(epsilon=["0.5"], n=1_001))
    assert foresight.look(other) is None  # another n is another question

    def fails(_: object) -> dict[str, Any]:
        raise InvalidInput("no")

    with monkeypatch.context() as patch:
        patch.setattr(type(other), "answer", fails)
        foresight.ask(other)
        with pytest.raises(InvalidInput):
            until(lambda: foresight.look(other))
    assert foresight.look(other) is None
    foresight.ask(other)
    assert until(lambda: foresight.look(other))["n"] == 1_001


def test_a_service_that_stops_waits_for_the_answer_that_is_worked_on(
    lite: LabelsParty, person: Looker, monkeypatch: pytest.MonkeyPatch
) -> None:
    foresight = Foresight()
    wanted = [question(lite.services, "shop", Plan(epsilon=["0.5"], n=n)) for n in (1_000, 1_001)]
    begun, goes_on = threading.Event(), threading.Event()
    answered = []

    def slowly(asked: Question) -> dict[str, Any]:
        begun.set()
        assert goes_on.wait(PATIENCE)
        answered.append(asked.rows)
        return {"n": asked.rows}

    monkeypatch.setattr(Question, "answer", slowly)
    foresight.ask(wanted[0])
    assert begun.wait(PATIENCE)
    foresight.ask(wanted[1])
    closing = threading.Thread(target=foresight.close)
    closing.start()
    closing.join(0.2)
    assert closing.is_alive()
    goes_on.set()
    closing.join(PATIENCE)
    assert answered == [1_000]
    foresight.ask(wanted[1])
    assert not foresight.awaited(wanted[1])


def test_a_curve_of_a_long_domain_is_close_to_that_of_all_its_labels(
    lite: LabelsParty, person: Looker, monkeypatch: pytest.MonkeyPatch
) -> None:
    lite.client("owner").post("/v1/populations", json=SHOP | {"name": "long", "domain": "0:3000"})
    wanted = question(lite.services, "long", Plan(epsilon=["1"], n=50_000))
    few = Foresight().least(wanted, [Epsilon.parse("0.5"), Epsilon.parse("2")])
    monkeypatch.setattr("labels_party.message.preview.OUTLINED", 10_000)
    whole = Foresight().least(wanted, [Epsilon.parse("0.5"), Epsilon.parse("2")])
    np.testing.assert_allclose(list(few.values()), list(whole.values()), rtol=0.02)


def test_a_slider_refuses_what_is_no_place_of_it() -> None:
    slider = Slider("x", "X", ("1", "2", "5"))
    assert [slider.at(place) for place in "012"] == ["1", "2", "5"]
    assert (slider.placed("4.9")["place"], slider.placed("4.9")["figure"]) == (2, "4.9")
    for place in ("3", "-1", "", "٢", "1.0"):
        with pytest.raises(InvalidInput):
            slider.at(place)


def test_it_opens_on_the_newest_population_and_says_what_epsilon_means(
    lite: LabelsParty, clock: FakeClock, person: Looker
) -> None:
    clock.move(minutes=1)
    owner = lite.client("owner")
    rules = SHOP | {"name": "newest", "label": "other"}
    assert owner.post("/v1/populations", json=rules).status_code == 201
    newest, batch = "newest", owner.post("/v1/populations/newest/batches", json={"presence": "public"}).json()["id"]
    rows = [{"example_id": f"c{i}", "label": 1} for i in range(210)]
    assert owner.post(f"/v1/batches/{batch}/labels", json={"records": rows}).status_code == 200
    assert owner.post(f"/v1/batches/{batch}/seal").status_code == 200
    page = person.get("/plan").text
    assert page.count(f'<option value="{newest}" selected>') == 2  # beside the sliders, and of the exact figures
    assert re.search(r'id="f-n"[^>]*value="210"', page)
    assert "What ε 1 means:</strong> Solid protection: a single value is a weak hint" in page
    exact = page.partition("Exact figures instead")[2]
    assert 'type="hidden"' not in exact
    assert '<option value="shop"' in exact
    assert "Weak protection" in person.get("/plan?population=shop&epsilon=8&n=1000").text
    assert "What ε" not in person.get("/plan?population=shop&epsilon=none&n=1000").text
