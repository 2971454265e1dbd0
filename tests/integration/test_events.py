"""Conversion events through REST: what counts, what does not, and what nobody is told."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import sqlalchemy as sa

from label_dp.documents.bundle import verify
from label_dp.documents.signing import VerifyingKey
from label_dp.schemas.events import BECAME, EventRule
from labels_party.storage.tables import batch_keys
from tests.support.events import DAY, RULE, SECOND, EventShop, event
from tests.support.labels import LabelsParty
from tests.support.labels_api import is_problem
from tests.support.pages import signed_in


@pytest.fixture
def shop(party_on: LabelsParty) -> EventShop:
    return EventShop(party_on)


def test_events_of_every_kind_become_one_label_each(shop: EventShop) -> None:
    batch = shop.open(shop.population(), ["a", "b", "c", "d"])
    shop.send(
        event("a", 10, id="1"),
        event("a", 12.5, id="2"),
        event("a", 2.5, id="3", event_type="refund"),
        event("b", 250),  # beyond the domain: clipped once, after adding up
        event("b", 200, event_type="refund"),
        event("c", 5, user_data={"click_id": "c", "mmt_only": True}),
        event("c", 5, event_type="page_view"),
        event("nobody", 5),
        event(None, 5),
    )
    assert shop.sealed(batch) == {"a": 20, "b": 50, "c": 0, "d": 0}
    assert shop.counts(batch) == {
        "records": 9,
        "other_type": 1,
        "mmt_only": 1,
        "without_example": 1,
        "not_listed": 1,
        "counted": 5,
        "examples": 2,
    }


@pytest.mark.parametrize("value", [20, -20])
def test_a_refund_lowers_a_label_however_its_value_is_signed(shop: EventShop, value: int) -> None:
    batch = shop.open(shop.population(), ["a"])
    shop.send(event("a", 50), event("a", value, event_type="refund"))
    assert shop.sealed(batch) == {"a": 30}


def test_one_event_feeds_every_population_of_its_data_set(shop: EventShop) -> None:
    batches = [
        shop.open(shop.population("any", "binary", take="any"), ["a", "b"]),
        shop.open(shop.population("count", "0:10", take="count"), ["a", "b"]),
        shop.open(shop.population("value"), ["a", "b"]),
        shop.open(shop.population("elsewhere", data_set_id="another"), ["a", "b"]),
    ]
    shop.send(event("a", 10), event("a", 20), event("b", 7), event("b", 7, event_type="refund"))
    assert [shop.sealed(batch) for batch in batches] == [
        {"a": 1, "b": 0},
        {"a": 2, "b": 0},
        {"a": 30, "b": 0},
        {"a": 0, "b": 0},
    ]


def test_records_of_one_event_merge_until_the_seal(shop: EventShop) -> None:
    batch = shop.open(shop.population(), ["a", "b"])
    shop.send(event("a", 10, id="order"))
    shop.send(event("a", 10, id="order"))
    shop.send(event(None, id="order"))  # what it lacks stays
    shop.send(event("b", 30, id="order", timestamp=SECOND + 5))
    shop.send(event("b", id="shipped", event_type="page_view"), event("b", 1, id="shipped"))
    assert shop.sealed(batch) == {"a": 0, "b": 31}
    assert shop.counts(batch) == {"records": 6, "repeats": 4, "counted": 2, "examples": 1}


def test_an_event_counts_in_batches_that_were_open(shop: EventShop) -> None:
    population = shop.population()
    shop.send(event("a", 1), event("b", 1))
    first = shop.open(population)
    shop.send(event("a", 2), event("b", 2))
    shop.list(first, ["a"])  # a list may come after the events
    second = shop.open(population, ["b"])
    shop.send(event("a", 4), event("b", 4))
    assert shop.sealed(first) == {"a": 6}
    shop.send(event("a", 8), event("b", 8))
    assert shop.sealed(second) == {"b": 12}


def test_a_window_counts_from_the_time_of_the_example(shop: EventShop) -> None:
    population = shop.population(window_days=2)
    batch = shop.open(population, ["a", "b", "c"], {"a": SECOND, "b": SECOND + DAY, "c": SECOND - 5 * DAY})
    end = SECOND + 2 * DAY
    shop.send(*(event(click, 1 << i, timestamp=at) for click in "abc" for i, at in enumerate((SECOND, end - 1, end))))
    assert shop.sealed(batch) == {"a": 3, "b": 6, "c": 0}


def test_a_list_with_other_times_is_another_list(shop: EventShop) -> None:
    batch = shop.open(shop.population(window_days=1), ["a"], {"a": SECOND})
    shop.list(batch, ["a"], {"a": SECOND + DAY})
    shop.send(event("a", 5, timestamp=SECOND + DAY))
    assert shop.sealed(batch) == {"a": 5}


@pytest.mark.parametrize(
    ("changes", "field", "rule"),
    [
        ({"data_set_id": "unknown"}, "data_set_id", "names no data set"),
        ({"data_set_id": None}, "data_set_id", "names no data set"),
        ({"timestamp": None}, "timestamp", "whole seconds"),
        ({"timestamp": SECOND * 1000}, "timestamp", "whole seconds"),
        ({"timestamp": 1.5}, "timestamp", "whole seconds"),
        ({"timestamp": True}, "timestamp", "whole seconds"),
        ({"timestamp": 1 << 70}, "timestamp", "whole seconds"),
        ({"event_type": None}, "event_type", "text"),
        ({"event_type": "custom"}, "custom_event", "must name the event"),
        ({"value": "12"}, "value", "must be a number"),
        ({"value": 1e12}, "value", "must be a number"),
        ({"value": 3, "currency_code": None}, "currency_code", "since value is set"),
        ({"value": 3, "currency_code": "EURO"}, "currency_code", "since value is set"),
        ({"value": 3, "currency_code": "USD"}, "currency_code", "is not the currency"),
        ({"id": ""}, "id", "1 to 1,024 bytes"),
        ({"id": {}}, "id", "1 to 1,024 bytes"),
        ({"user_data": []}, "user_data", "must be an event object"),
        ({"user_data": {"click_id": "a", "mmt_only": "yes"}}, "user_data.mmt_only", "true or false"),
        ({"user_data": {"click_id": ""}}, "user_data.click_id", ""),
        ({"user_data": {"click_id": ["a"]}}, "user_data.click_id", "text or a whole number"),
    ],
)
def test_a_bad_event_is_refused_by_row_and_rule(shop: EventShop, changes: Any, field: str, rule: str) -> None:
    batch = shop.open(shop.population(), ["a"])
    bad = event("a", 12.5) | changes
    for body in ([event("a", 1), bad], [bad]):
        answer = shop.sender.post("/v1/events", json=body)
        assert answer.status_code == 400, answer.text
        (row,) = answer.json()["rows"]
        assert (row["row"], row["field"]) == (len(body), field)
        assert rule in row["rule"]
        assert "12" not in answer.text.replace("1,024", "").replace("512", "")
    lines = "\n".join(json.dumps(one) for one in (event("a", 1), bad))
    answer = shop.sender.post("/v1/events", content=lines, headers={"content-type": "application/x-ndjson"})
    assert (answer.status_code, answer.json()["rows"][0]["line"]) == (400, 2)
    assert shop.sealed(batch) == {"a": 0}  # all or none


def test_bodies_that_are_no_events_are_refused(shop: EventShop) -> None:
    shop.population()
    post = shop.sender.post
    assert post("/v1/events", content="{").status_code == 400
    assert post("/v1/events", json=[1]).json()["rows"][0]["rule"] == "must be an event object"
    for kind in ("text/csv", "text/plain"):
        answer = post("/v1/events", content="a,b", headers={"content-type": kind})
        assert (answer.status_code, "csv" in answer.json()["detail"]) == (415, False)
    is_problem(shop.party.client("features").post("/v1/events", json=[]), 404, "not-found")
    assert post("/v1/events", json=[]).json() == {"accepted": 0}
    one = post("/v1/events", json=event("a", 1) | {"ext": {"anything": [1, {}]}, "properties": {"items": []}})
    assert one.json() == {"accepted": 1}


def test_labels_and_public_presence_are_refused(shop: EventShop) -> None:
    population = shop.population()
    batch = shop.open(population, ["a"])
    answer = shop.owner.post(f"/v1/batches/{batch}/labels", json={"example_id": ["a"], "label": [1]})
    is_problem(answer, 409, "conflict")
    assert "/v1/events" in answer.json()["detail"]
    answer = shop.owner.post(f"/v1/populations/{population}/batches", json={"presence": "public"})
    assert answer.status_code == 422
    assert "must not come from events" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("changes", "rule", "told"),
    [
        ({}, {"types": {"purchse": "+"}}, "is no type of event"),
        ({}, {"types": {"custom:": "+"}}, "is no type of event"),
        ({}, {"types": {"refund": "-"}}, "at least one type with the sign"),
        ({}, {"currency": None}, "names their currency"),
        ({"missing_label": None}, {}, "needs a missing_label"),
        ({"out_of_domain": "refuse"}, {}, "clipped to the domain"),
        ({"domain": ["x", "y"], "missing_label": "x"}, {}, "domain of names"),
    ],
)
def test_a_rule_that_cannot_work_is_refused(shop: EventShop, changes: Any, rule: Any, told: str) -> None:
    body = {"name": "p", "label": "p", "domain": "0:9", "lifetime_epsilon": "1", "missing_label": 0} | changes
    answer = shop.owner.post("/v1/populations", json=body | {"events": RULE | rule})
    assert answer.status_code == 422, answer.text
    assert told in answer.json()["detail"]


def test_two_rules_of_a_data_set_must_go_together(shop: EventShop) -> None:
    shop.population("one")
    body = {"name": "two", "label": "two", "domain": "0:9", "lifetime_epsilon": "1", "missing_label": 0}
    for changes, told in (
        ({"example_id": "user_data.impression_id"}, "user_data.click_id"),
        ({"currency": "USD"}, "EUR"),
    ):
        answer = shop.owner.post("/v1/populations", json=body | {"events": RULE | changes})
        is_problem(answer, 409, "conflict")
        assert told in answer.json()["detail"]
    shop.population("two", currency="USD", other_currency="leave-out")


def windows(shop: EventShop) -> list[str]:
    """The stored objects of events, by their keys."""
    return [key for key in shop.party.services.vault.keys("") if key.startswith("evw_")]


def kept_keys(shop: EventShop) -> set[str]:
    """The batches and windows whose objects can be opened."""
    return set(shop.party.services.database.read("keys", lambda c: c.execute(sa.select(batch_keys.c.batch)).scalars()))


def test_a_window_is_erased_when_no_open_batch_needs_it(shop: EventShop) -> None:
    population = shop.population()
    first, second = shop.open(population, ["a"]), shop.open(population, ["b"])
    shop.send(event("a", 1), event("b", 2))
    s = shop.party.services
    stored = windows(shop)
    assert len(stored) == 1
    shop.sealed(first)
    assert windows(shop) == stored
    shop.sealed(second)
    assert windows(shop) == []
    with pytest.raises(FileNotFoundError):
        s.vault.get_bytes(stored[0])


def test_a_discard_erases_the_events_that_no_other_batch_needs(shop: EventShop) -> None:
    population = shop.population()
    first = shop.open(population, ["a"])
    shop.send(event("a", 1))
    (early,) = windows(shop)
    second = shop.open(population, ["b"])
    shop.send(event("b", 2))
    (late,) = set(windows(shop)) - {early}
    for batch, rest in ((first, [late]), (second, [])):
        assert shop.owner.delete(f"/v1/batches/{batch}").status_code == 204
        assert windows(shop) == rest
        assert kept_keys(shop) == {key.partition("/")[0] for key in rest} | ({second} if rest else set())
    for key in (early, late):
        with pytest.raises(FileNotFoundError):
            shop.party.services.vault.get_bytes(key)


def test_events_that_no_batch_can_count_are_not_kept(shop: EventShop) -> None:
    population = shop.population()
    shop.send(event("a", 1))
    s = shop.party.services
    assert windows(shop)
    assert s.sealer.events.windows.retire() == 1
    assert windows(shop) == []
    shop.send(event("a", 2))  # a new window takes them
    batch = shop.open(population, ["a"])
    shop.send(event("a", 4))
    assert s.sealer.events.windows.retire() == 1
    assert shop.sealed(batch) == {"a": 4}


def test_a_repeated_call_counts_once(shop: EventShop) -> None:
    batch = shop.open(shop.population(), ["a"])
    for _ in range(2):
        answer = shop.sender.post("/v1/events", json=[event("a", 5)], headers={"idempotency-key": "one"})
        assert answer.json() == {"accepted": 1}
    answer = shop.sender.post("/v1/events", json=[event("a", 6)], headers={"idempotency-key": "one"})
    is_problem(answer, 422, "idempotency-conflict")
    assert shop.sealed(batch) == {"a": 5}


def test_the_rule_is_in_the_plan_the_message_and_its_statement(shop: EventShop) -> None:
    population = shop.population()
    batch = shop.open(population, ["a", "b"])
    shop.sealed(batch)
    asked = {"epsilon": "1", "n": 2}
    assert shop.owner.get(f"/v1/populations/{population}/plan", params=asked).json()["events"] == (
        "sum of the values of the events purchase (+) and refund (-) of data set shop-orders; by user_data.click_id, "
        "until the seal; values are in EUR, those in another currency are refused"
    )
    release = shop.party.release(batch)
    key = VerifyingKey.load(shop.party.home / "keys" / "signing.pub")
    manifest = verify(shop.party.bundle(release).path, key, audience=None).manifest
    assert manifest.population.events == EventRule.model_validate(RULE)
    page = shop.owner.get(f"/v1/releases/{release}/statement").text
    assert "sum of the values of the events purchase (+) and refund (-) of data set" in page


def test_the_page_of_a_batch_has_what_became_of_events_for_its_owner_alone(timed: LabelsParty) -> None:
    """To the others two batches look alike, of which one has events of its examples."""
    shop = EventShop(timed)
    population = shop.population(window_days=3)
    batches = [shop.open(population, ids, dict.fromkeys(ids, SECOND)) for ids in (["a", "b"], ["c", "d"])]
    people = {role: signed_in(timed.client(role)) for role in ("owner", "auditor", "features")}

    def page(role: str, batch: str) -> str:
        text = people[role].get(f"/batches/{batch}").text
        return text.replace(batch, "BATCH").replace(batch[:12], "BATCH")

    def became(batch: str) -> dict[str, int]:
        rows = re.findall(r'<th scope="row">([^<]+)</th><td class="n">([\d,]+)</td>', page("owner", batch))
        return {words.casefold(): int(count) for words, count in rows}

    assert page("auditor", batches[0]) == page("auditor", batches[1])
    assert "is counted at the seal" in page("owner", batches[0])
    assert became(batches[0]) == {}
    assert "Labels: sum of the values of the events purchase (+)" in page("auditor", batches[0])
    shop.send(
        *(event("a", 1, id="one") for _ in range(38)),
        *(event("a", 1, event_type="page_view") for _ in range(41)),
        *(event("b", 1, user_data={"click_id": "b", "mmt_only": True}) for _ in range(43)),
        *(event(None, 1) for _ in range(47)),
        *(event("b") for _ in range(53)),
        *(event("x", 1) for _ in range(59)),
        *(event("b", 1, timestamp=SECOND + 3 * DAY) for _ in range(61)),
    )
    for batch in batches:
        shop.sealed(batch)
        counts = timed.services.sealer.events.counts(batch)
        assert counts.keys() - {"records", "examples"} == BECAME.keys()
        assert became(batch) == {words: counts[name] for name, words in BECAME.items()}
    assert sorted(became(batches[0]).values()) == [0, 1, 37, 41, 43, 47, 53, 59, 61]
    assert "1 of 2 examples has at least one event that counted" in page("owner", batches[0])
    assert "342 records came" in page("owner", batches[0])
    shown = page("auditor", batches[0])
    assert shown == page("auditor", batches[1])
    assert "is shown to the owner alone" in shown
    assert "left out" not in shown.partition("What became")[2]
    assert not re.search(r"\b(342|37|41|43|47|53|59|61)\b", re.sub("[0-9a-f]{12,}", "", shown))
    assert people["features"].get(f"/batches/{batches[0]}").status_code == 404
    assert page("features", batches[0]) == page("features", "bat_" + "0" * 24)
    timed.services.retention.purge(batches[0], "test")
    assert "was deleted with the labels" in page("owner", batches[0])
    assert became(batches[0]) == {}
