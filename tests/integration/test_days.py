"""What others than the owner are told of times is the day: the second of a scheduled seal, and of what follows it,
tells when the last label came."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.calibrations import charged, score_table
from tests.support.labels import FakeClock, LabelsParty, label_table
from tests.support.receipts import Pair, pair

SECOND = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def day(folder: Path, minutes: float) -> dict[str, Any]:
    """All that an auditor and a receiver may see after a day on which labels were complete after `minutes`."""
    clock = FakeClock()
    with LabelsParty(folder / "home", clock=clock, worker=False) as party:
        owner = party.client()
        body = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "5", "missing_label": 0}
        owner.post("/v1/populations", json=body)
        made = owner.post("/v1/populations/shop/batches", json={"presence": "public"}).json()["id"]
        clock.move(minutes=minutes)
        records = label_table(40).to_pylist()
        owner.post(f"/v1/batches/{made}/labels", json={"records": records})
        assert owner.post(f"/v1/batches/{made}/seal").status_code == 200
        release = party.release(made, "1")
        clock.move(minutes=1)
        answer = charged(party, made, score_table(label_table(40)), additional_release=True)
        assert party.services.pipeline.run(answer)
        owner.post("/v1/populations/shop/erasures", json={"example_ids": ["click-000001"]})
        party.services.erasures.finish()
        calls = {
            "auditor": ["audit/events", "audit/events?since=2030-01-01T06:00:00Z", "populations/shop/erasures"],
            "features": ["releases", "answers", f"releases/{release}/manifest", f"answers/{answer}/document"],
        }
        both = [f"releases/{release}", f"answers/{answer}", "predictors", f"releases/{release}/statement"]
        seen: dict[str, Any] = {}
        for role, paths in calls.items():
            client = party.client(role)
            for path in paths + both:
                found = client.get(f"/v1/{path}")
                assert found.status_code == 200, (role, path, found.text)
                seen[f"{role} {path}"] = found.text + str(dict(found.headers))
        export = party.client("auditor").get("/v1/audit/export").content
        events = json.loads(base64.b64decode(json.loads(export)["payload"]))["events"]
        seen["export"] = json.dumps(events)
        exact = owner.get("/v1/audit/events").json()
        assert {e["at"][:10] for e in exact} == {"2030-01-01"}
        assert len({e["at"] for e in exact}) > 1, "the owner sees the seconds"
        late = owner.get("/v1/audit/events?since=2030-01-01T06:00:00Z").json()
        assert len(late) < len(exact), "and may ask for them"
    for kind, found in {"release": release, "answer": answer, "batch": made}.items():
        seen = {name.replace(found, kind): text.replace(found, kind) for name, text in seen.items()}
    return seen


def test_no_second_is_told_to_an_auditor_or_a_receiver(tmp_path: Path) -> None:
    seen = day(tmp_path, 400)
    assert {name: SECOND.findall(text) for name, text in seen.items() if SECOND.search(text)} == {}


def test_the_hour_of_complete_labels_changes_nothing_that_is_told(tmp_path: Path) -> None:
    """Everything that is said of times, the number of events that a filter finds included."""
    early, late = day(tmp_path / "early", 30), day(tmp_path / "late", 900)
    for one, other in zip(early.items(), late.items(), strict=True):
        assert one[0] == other[0]
        counts = [text.count('"kind"') for text in (one[1], other[1])]
        assert counts[0] == counts[1], one[0]
        times = [sorted(re.findall(r"\d{4}-\d{2}-\d{2}[T0-9:Z]*|GMT", text)) for text in (one[1], other[1])]
        assert times[0] == times[1], one[0]


@pytest.fixture
def both(tmp_path: Path) -> Any:
    with pair(tmp_path) as started:
        yield started


def test_a_receipt_tells_the_day(both: Pair) -> None:
    both.pull()
    for events in (both.labels_events(), both.receiver.events()):
        assert all(SECOND.search(e.body().decode()) is None for e in events)
        assert all(SECOND.search(e.at) for e in events), "its own party knows the second"
    ((_, receipt),) = both.receiver.receipts()
    assert SECOND.search(base64.b64decode(receipt["payload"]).decode()) is None


def test_a_comparison_on_one_day_misses_nothing(both: Pair) -> None:
    """Exports tell days; the live side knows its seconds, so a loss of today is found today."""
    both.pull()
    copy = both.keep_copy(both.labels.home)
    lost = both.release()
    both.pull(lost)
    both.restore(both.labels.home, copy)
    found = both.receiver.compare(both.labels_export())
    assert [one["kind"] for one in found["findings"]] == ["missing-work"]
    assert found["findings"][0]["work"] == lost
