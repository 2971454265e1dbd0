"""What a key that may only send labels learns of labels that others sent: nothing, over any sequence of calls."""

from __future__ import annotations

import itertools
import json
import random
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from labels_party.labels import batches
from labels_party.labels.batches import LABELS, RUNS, SEALED, Segment
from labels_party.labels.compaction import FACTOR, Compaction, Tiers
from labels_party.labels.intake import Intake
from labels_party.labels.seal import SealedLabels
from tests.support.cases import cases
from tests.support.ingest_worlds import IDS, Rules, differences, steps, two_worlds
from tests.support.labels import LabelsParty
from tests.support.upload_formats import CSV

RULES = [Rules(*found) for found in itertools.product(("public", "id-list"), ("0", None), (False, True))]
LABELLED: list[tuple[list[str], list[str]]] = [([], IDS[:3]), (IDS[:1], IDS[1:2]), (IDS, IDS[:7])]


class Shop:
    """An open batch, its owner, and two backends with ingest keys of their own."""

    def __init__(self, party: LabelsParty, missing: str | None = "0") -> None:
        self.party, self.owner = party, party.client("owner")
        self.backend, self.other = party.client("ingest"), party.client("ingest")
        body = {"name": "shop", "label": "r", "domain": "0:10", "lifetime_epsilon": "3", "missing_label": missing}
        shop = self.owner.post("/v1/populations", json=body).json()["id"]
        self.batch = self.owner.post(f"/v1/populations/{shop}/batches", json={"presence": "public"}).json()["id"]
        self.path = f"/v1/batches/{self.batch}"

    def send(self, client: Any, labels: dict[str, int], mode: str = "insert", key: str | None = None) -> Any:
        body = {"example_id": list(labels), "label": list(labels.values())}
        headers = {} if key is None else {"Idempotency-Key": key}
        return client.post(f"{self.path}/labels", params={"mode": mode}, json=body, headers=headers)

    def waiting(self) -> list[dict[str, Any]]:
        return [u for u in self.owner.get(f"{self.path}/set-aside").json() if u["decision"] is None]

    def decide(self, upload: str, decision: str) -> Any:
        return self.owner.post(f"{self.path}/set-aside/{upload}", json={"decision": decision})

    def sealed(self) -> dict[str, int]:
        answer = self.owner.post(f"{self.path}/seal")
        assert answer.status_code == 200, answer.text
        s = self.party.services
        (segment,) = s.database.read("test.segments", lambda c: s.batches.segments(c, self.batch, SEALED))
        chunks = list(SealedLabels(s.vault, segment.key).chunks())
        ids = [i for found, _ in chunks for i in found.to_pylist()]
        return dict(zip(ids, (int(p) for _, found in chunks for p in found), strict=True))


@pytest.fixture
def shop(party_on: LabelsParty) -> Shop:
    return Shop(party_on)


# --- two worlds ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rules", cases(RULES, lambda rules: (rules.missing is None) != rules.scheduled), ids=str)
def test_no_sequence_of_calls_tells_which_ids_have_a_label(rules: Rules, tmp_path: Path) -> None:
    for number, labelled in enumerate(LABELLED):
        with two_worlds(tmp_path / str(number), rules, labelled) as worlds:
            rng = random.Random(f"{rules} {number}")
            assert differences(worlds, steps(rng, 20)) == []


def probe(worlds: Any, *calls: dict[str, Any]) -> list[Any]:
    return differences(worlds, iter(calls))


def insert(ids: list[str]) -> dict[str, Any]:
    body = {"example_id": ids, "label": [0] * len(ids)}
    call = {"what": "call", "method": "POST", "path": "labels", "media": "application/json", "key": None}
    return call | {"body": json.dumps(body).encode(), "params": {"mode": "insert"}}


@pytest.mark.parametrize("hole", ["rows", "one bit", "seal", "time"])
def test_the_two_worlds_are_told_apart_where_there_is_a_hole(
    hole: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controls: what an upload was answered before, and what a batch told by being open still."""
    rules = Rules("public", "0", scheduled=hole == "time")
    calls: dict[str, tuple[dict[str, Any], ...]] = {
        "rows": (insert(IDS),),
        "one bit": (insert(IDS[:1]),),
        "seal": (insert(IDS[:1]), {"what": "seal"}, insert(IDS[7:])),
        "time": (insert(IDS[:1]), {"what": "wait", "hours": 25}, insert(IDS[7:])),
    }
    with two_worlds(tmp_path / "closed", rules, ([], IDS[:3])) as worlds:
        assert probe(worlds, *calls[hole]) == []
    if hole in ("rows", "one bit"):
        take = Intake.add_small
        monkeypatch.setattr(
            Intake, "add_small", lambda self, batch, sent: take(self, batch, [replace(u, owner=True) for u in sent])
        )
    else:
        monkeypatch.setattr(batches, "require_window", lambda batch, now: batches.require_open(batch))
    with two_worlds(tmp_path / "open", rules, ([], IDS[:3])) as worlds:
        assert len(probe(worlds, *calls[hole])) == 1


# --- what the owner does with it -------------------------------------------------------------------------------


def test_a_second_record_never_counts_and_only_the_owner_learns_of_it(shop: Shop) -> None:
    assert shop.send(shop.other, {"b": 1, "d": 2}).json() == {"batch": shop.batch, "accepted": 2}
    sent = shop.send(shop.backend, {"a": 5, "b": 5, "c": 5, "d": 5})
    assert (sent.status_code, sent.json()) == (200, {"batch": shop.batch, "accepted": 4})
    (upload,) = shop.waiting()
    assert (upload["rows"], sorted(upload["examples"])) == (4, ["b", "d"])
    assert upload["sent_by"].startswith("apikey:")
    refused = shop.owner.post(f"{shop.path}/seal")
    assert (refused.status_code, refused.json()["code"]) == (409, "uploads-set-aside")
    assert shop.decide(upload["id"], "drop").json()["decision"] == "drop"
    assert shop.waiting() == []
    assert shop.sealed() == {"b": 1, "d": 2}


def test_the_owners_view_of_a_batch_counts_what_waits(shop: Shop) -> None:
    population = shop.owner.get(shop.path).json()["population"]

    def counted() -> list[int]:
        (listed,) = shop.owner.get(f"/v1/populations/{population}/batches").json()
        return [shop.owner.get(shop.path).json()["set_aside"], listed["set_aside"]]

    shop.send(shop.other, {"b": 1})
    assert counted() == [0, 0]
    for label in (6, 7, 7):  # the last is a repeat
        shop.send(shop.backend, {"b": label})
    assert counted() == [2, 2]
    shop.decide(shop.waiting()[0]["id"], "drop")
    assert counted() == [1, 1]
    assert shop.other.get(shop.path).status_code == 404


def test_equal_values_are_set_aside_as_others_are(shop: Shop) -> None:
    shop.send(shop.other, {"a": 1, "b": 2})
    for labels in ({"a": 1}, {"a": 2}):
        assert shop.send(shop.backend, labels).json()["accepted"] == 1
    assert [u["examples"] for u in shop.waiting()] == [["a"], ["a"]]


def test_the_owner_may_let_it_replace_what_was_there(shop: Shop) -> None:
    shop.send(shop.other, {"b": 1, "d": 2})
    shop.send(shop.backend, {"a": 5, "b": 6})
    shop.send(shop.backend, {"e": 7})
    (upload,) = shop.waiting()
    assert shop.decide(upload["id"], "replace").status_code == 200
    # its ids have records now
    assert shop.send(shop.owner, {"a": 1}).json()["code"] == "duplicate-id"
    assert shop.sealed() == {"a": 5, "b": 6, "d": 2, "e": 7}
    again = shop.decide(upload["id"], "drop")
    assert again.status_code == 409


def test_what_waits_hinders_nobody_else_and_leaves_nothing_behind(shop: Shop) -> None:
    shop.send(shop.other, {"b": 1})
    for label in (6, 7, 8):
        shop.send(shop.backend, {"a": 5, "b": label})
    assert shop.send(shop.owner, {"a": 2}).json()["accepted"] == 1  # an id that only waits has no record
    assert len(shop.waiting()) == 3
    for upload in shop.waiting():
        assert shop.decide(upload["id"], "drop").status_code == 200
    assert shop.sealed() == {"a": 2, "b": 1}
    s = shop.party.services
    s.erasures.finish()
    segments = s.database.read("t", lambda c: [k.key for kind in ("labels", "sealed", "runs", "erased")
                                               for k in s.batches.segments(c, shop.batch, kind)])  # fmt: skip
    assert sorted(s.vault.keys(f"{shop.batch}/")) == sorted(segments)
    # what was dropped is in no file any more
    assert s.database.read("t", lambda c: s.batches.segments(c, shop.batch, LABELS)) == []


def test_an_id_of_another_key_stays_taken_whatever_became_of_it(shop: Shop) -> None:
    """Else an upload would count where the one before it was set aside, and one bit become as many as it has rows."""
    shop.send(shop.other, {"x": 1})
    for labels in ({"x": 2, "a": 2}, {"a": 3, "b": 3}, {"b": 4, "c": 4}):
        assert shop.send(shop.backend, labels).json()["accepted"] == 2
    assert sorted((u["rows"], u["examples"]) for u in shop.waiting()) == [(2, []), (2, []), (2, ["x"])]
    for upload in shop.waiting():
        assert shop.decide(upload["id"], "drop").status_code == 200
    assert shop.send(shop.backend, {"c": 5}).json()["accepted"] == 1
    (upload,) = shop.waiting()
    assert shop.send(shop.owner, {"b": 6}).json()["accepted"] == 1
    assert shop.decide(upload["id"], "replace").status_code == 200
    assert shop.send(shop.owner, {"c": 7}).json()["code"] == "duplicate-id"
    assert shop.sealed() == {"x": 1, "b": 6, "c": 5}


def test_a_batch_that_is_discarded_takes_what_waits_with_it(shop: Shop) -> None:
    shop.send(shop.other, {"b": 1})
    shop.send(shop.backend, {"b": 6})
    assert shop.owner.delete(shop.path).status_code == 204
    assert shop.party.services.vault.keys(f"{shop.batch}/") == []


def test_decisions_are_idempotent_and_checked(shop: Shop) -> None:
    shop.send(shop.other, {"b": 1})
    shop.send(shop.backend, {"b": 6})
    (upload,) = shop.waiting()
    assert shop.decide(upload["id"], "keep").status_code == 422
    assert shop.decide("upl_nothing", "drop").status_code == 404
    assert shop.backend.get(f"{shop.path}/set-aside").status_code == 404
    body = {"json": {"decision": "drop"}, "headers": {"Idempotency-Key": "k"}}
    first, second = (shop.owner.post(f"{shop.path}/set-aside/{upload['id']}", **body) for _ in range(2))
    assert (first.status_code, first.content) == (second.status_code, second.content)


def test_the_owner_is_still_told_the_rows(shop: Shop) -> None:
    shop.send(shop.other, {"b": 1, "d": 2})
    refused = shop.send(shop.owner, {"a": 5, "b": 5, "c": 5, "d": 5})
    assert [row["row"] for row in refused.json()["rows"]] == [2, 4]
    assert shop.waiting() == []


def test_a_repeated_upload_under_its_key_is_one_upload(shop: Shop) -> None:
    for _ in range(3):
        assert shop.send(shop.backend, {"a": 1}, key="k").json()["accepted"] == 1
    assert shop.waiting() == []
    assert shop.sealed() == {"a": 1}


# --- the window ------------------------------------------------------------------------------------------------


def test_a_seal_that_was_refused_looks_to_a_sender_as_one_that_was_not(party: LabelsParty) -> None:
    shop = Shop(party, missing=None)
    shop.send(shop.owner, {"a": 1})
    shop.owner.request("DELETE", f"{shop.path}/labels", json={"example_id": ["a"]})
    refused = shop.owner.post(f"{shop.path}/seal")
    assert refused.json()["code"] == "missing-labels"
    while_open = shop.send(shop.backend, {"b": 1})
    deleted = shop.backend.request("DELETE", f"{shop.path}/labels", json={"example_id": ["a"]})
    assert shop.owner.get(shop.path).json()["closed"] is not None
    assert shop.send(shop.owner, {"a": 4}, mode="upsert").status_code == 200
    assert shop.sealed() == {"a": 4}
    assert (while_open.status_code, deleted.status_code) == (409, 409)
    assert shop.send(shop.backend, {"b": 1}).json() == while_open.json() == deleted.json()


def test_a_new_time_lets_senders_send_again(shop: Shop) -> None:
    shop.owner.post(f"{shop.path}/seal")
    assert shop.send(shop.backend, {"a": 1}).status_code == 409
    moved = shop.owner.patch(shop.path, json={"seal_at": "2999-01-01T00:00:00Z"})
    assert moved.json()["closed"] is None
    assert shop.send(shop.backend, {"a": 1}).status_code == 200
    sent = shop.backend.post(f"{shop.path}/labels", content="example_id,label\nb,2\n", headers={"content-type": CSV})
    assert sent.status_code == 200
    assert shop.sealed() == {"a": 1, "b": 2}


def test_nothing_of_it_stands_in_the_audit_store(shop: Shop) -> None:
    """An export is shown to the other party, which may have an ingest key's holder for a friend."""
    audit = shop.party.services.audit

    def kinds() -> list[str]:
        return [event.kind for event in shop.party.services.database.read("t", audit.events)]

    shop.send(shop.other, {"b": 1})
    before = kinds()
    shop.send(shop.backend, {"b": 6})
    shop.decide(shop.waiting()[0]["id"], "drop")
    assert kinds() == before


def test_nobody_waits_for_the_merge_that_an_upload_sets_off(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven uploads of new ids, then one with an id that somebody else may have sent: were it set aside, there would be
    nothing to merge, and what takes long at a million ids would tell."""
    go, merged = threading.Event(), threading.Event()
    merge = Compaction._merge

    def slow(self: Compaction, tiers: Tiers, chosen: list[Segment]) -> bool:
        assert go.wait(60)
        done = merge(self, tiers, chosen)
        merged.set()
        return done

    def runs() -> int:
        s = shop.party.services
        return len(s.database.read("test.runs", lambda c: s.batches.segments(c, shop.batch, RUNS, LABELS)))

    monkeypatch.setattr(Compaction, "_merge", slow)
    for number in range(FACTOR):
        assert shop.send(shop.backend, {f"m-{number}": 3}).status_code == 200
    assert not merged.is_set()
    assert runs() == FACTOR
    go.set()
    assert merged.wait(60)
    shop.party.services.intake.compaction.close()
    assert runs() == 1
    assert shop.sealed() == {f"m-{number}": 3 for number in range(FACTOR)}
