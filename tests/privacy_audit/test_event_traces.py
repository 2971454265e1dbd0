"""What conversion events leave behind: nothing of them but digests, a time and an amount, and work that is the same
whatever counts. The controls are a store that keeps a member, and an intake that looks ids up."""

from __future__ import annotations

import json
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from labels_party.labels.events import intake
from labels_party.labels.spool import IN_MEMORY
from tests.support.call_costs import Costs
from tests.support.events import SECOND, EventShop, event, event_table
from tests.support.labels import LabelsParty

FULL = {
    "id": "ORDER-7781-XQ",
    "source": "website-XQ",
    "value": 31.41,
    "event_type": "purchase",
    "user_data": {
        "click_id": "CLICK-5529-XQ",
        "impression_id": "IMPRESSION-XQ",
        "customer_identifier": "CUSTOMER-XQ",
        "uids": [{"id": "UID-XQ", "source": "UIDSOURCE-XQ"}],
        "customer_segments": ["SEGMENT-XQ"],
        "email_address": ["EMAIL-XQ"],
        "phone_numbers": ["PHONE-XQ"],
        "address": [{"first_name": "FIRST-XQ", "city": "CITY-XQ", "postal_code": "POSTAL-XQ"}],
        "gpp_string": "GPP-XQ",
        "event_ip_address": "203.0.113.77",
        "event_user_agent": "AGENT-XQ",
        "ifa": "IFA-XQ",
        "landing_ip_address": "203.0.113.78",
        "gender": "GENDER-XQ",
        "ext": {"loyalty": "LOYALTY-XQ"},
    },
    "properties": {
        "transaction_id": "TRANSACTION-XQ",
        "page_url": "https://shop.example/PAGE-XQ",
        "search_term": "TERM-XQ",
        "items": [{"id": "SKU-XQ", "name": "ITEM-XQ", "brand": "BRAND-XQ"}],
        "coupon": ["COUPON-XQ"],
        "ext": {"shelf": "SHELF-XQ"},
    },
    "ext": {"anything": "EXT-XQ"},
}


def texts(member: Any) -> list[str]:
    """All texts of an event that only it has."""
    if isinstance(member, dict):
        return [text for value in member.values() for text in texts(value)]
    if isinstance(member, list):
        return [text for value in member for text in texts(value)]
    return [member] if isinstance(member, str) and ("XQ" in member or member.startswith("203.")) else []


def left_behind(home: Path, words: list[str]) -> set[str]:
    """Those of the words that some file of the home holds, whatever their case or encoding."""
    whole = b"".join(path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file()).lower()
    return {word for word in words if any(word.lower().encode(code) in whole for code in ("utf-8", "utf-16-le"))}


@pytest.mark.parametrize("bad", [False, True], ids=["accepted", "refused"])
def test_no_member_of_an_event_reaches_disk_or_log(tmp_path: Path, bad: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    words = texts(FULL)
    assert len(words) > 25
    with LabelsParty(tmp_path / "home", worker=False) as party:
        shop = EventShop(party)
        batch = shop.open(shop.population())
        events = [event(None, None) | FULL | {"currency_code": "EUR", "timestamp": SECOND + i} for i in range(3)]
        if bad:
            answer = shop.sender.post("/v1/events", json=[*events, event("x", timestamp="soon")])
            assert answer.status_code == 400
            assert not any(word in answer.text for word in words)
        else:
            shop.send(*events)
            lines = "\n".join(json.dumps(one) for one in events * 2000)  # beyond what waits in memory
            headers = {"content-type": "application/x-ndjson"}
            assert shop.sender.post("/v1/events", content=lines, headers=headers).status_code == 200
            table = event_table(events * 2000, compression="none", use_dictionary=False)
            assert len(table) > IN_MEMORY  # so it waits on the disk
            assert shop.send_table(table).status_code == 200
        assert left_behind(tmp_path, words) == set()
        shop.list(batch, ["another"])
        shop.sealed(batch)
        assert left_behind(tmp_path, words) == set()
    assert left_behind(tmp_path, words) == set()
    assert not any(word in record.getMessage() for record in caplog.records for word in [*words, "31.41"])
    (tmp_path / "home" / "kept.txt").write_text("… sku-xq …")  # the control
    assert left_behind(tmp_path, words) == {"SKU-XQ"}


def costs_of(tmp_path: Path, listed: list[str], sent_before: list[dict[str, Any]], call: list[dict[str, Any]]) -> Any:
    """The answer to a call and what it cost, in a world with that list and those events."""
    with LabelsParty(tmp_path, worker=False) as party:
        shop = EventShop(party)
        batch = shop.open(shop.population(), listed)
        shop.send(*sent_before)
        costs = Costs(party)
        shop.send(event("warm", 1))  # the use of the key is noted
        costs.taken()
        answer = shop.sender.post("/v1/events", json=call)
        seen: Counter[tuple[Any, ...]] = costs.taken()
        assert seen.total() > 3
        assert batch
        return answer.json(), seen


CALL = [event("a", 5, id="1"), event("b", 7, id="2", event_type="refund")]
WORLDS = {
    "known clicks": (["a", "b"], [event("q", 1, id="9"), event("r", 1, id="8")]),
    "unknown clicks": (["c", "d"], [event("q", 1, id="9"), event("r", 1, id="8")]),
    "repeats": (["a", "b"], CALL),
    "other events of the clicks": (["a", "b"], [event("a", 1, id="9"), event("b", 1, id="8")]),
}


def test_a_call_costs_the_same_whatever_counts(tmp_path: Path) -> None:
    seen = [costs_of(tmp_path / str(i), *world, CALL) for i, world in enumerate(WORLDS.values())]
    assert [(one[1] - seen[0][1], seen[0][1] - one[1]) for one in seen if one != seen[0]] == []


def test_an_intake_that_looked_ids_up_would_be_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: of events that came before, nothing is stored again."""
    real, before = intake.stored_events, set[bytes]()

    def new_only(*args: Any) -> Any:
        stored = {name: events[[row.tobytes() not in before for row in events]] for name, events in real(*args).items()}
        before.update(row.tobytes() for events in stored.values() for row in events)
        return stored

    monkeypatch.setattr(intake, "stored_events", new_only)
    seen = []
    for i, world in enumerate(WORLDS.values()):
        before.clear()
        seen.append(costs_of(tmp_path / str(i), *world, CALL))
    assert not all(one == seen[0] for one in seen)
