"""Lists, labels and seals in the wrong order, missing labels and overlapping batches."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from label_dp.errors import OverlappingBatch
from labels_party.labels.seal import SameExamples
from tests.support.desk import Desk
from tests.support.labels import LabelsParty


def test_labels_before_the_list_of_ids_are_refused(desk: Desk) -> None:
    batch = desk.open(desk.population, "id-list")
    before = desk.state(batch)
    desk.refused(desk.send(["a"], [73.194], batch), "conflict", "73.194", status=409)
    desk.refused(desk.client.post(f"/v1/batches/{batch}/seal"), "conflict", status=409)
    assert desk.state(batch) == before


def test_a_list_of_ids_after_labels_is_refused(desk: Desk) -> None:
    batch = desk.open(desk.population, "id-list")
    path = f"/v1/batches/{batch}/examples"
    assert desk.client.put(path, json={"example_id": ["a"]}).status_code == 200
    assert desk.client.put(path, json={"example_id": ["a", "b"]}).status_code == 200  # replaced, before labels count
    assert len([p for p in (desk.party.home / "labels" / batch).iterdir() if p.name.startswith("examples")]) == 2
    assert desk.send(["a"], [7], batch).status_code == 200
    before = desk.state()
    desk.refused(desk.client.put(path, json={"example_id": ["a"]}), "conflict", status=409)
    assert desk.state() == before


def test_a_list_for_public_presence_is_refused(desk: Desk) -> None:
    before = desk.state()
    answer = desk.client.put(f"/v1/batches/{desk.batch}/examples", json={"example_id": ["a"]})
    desk.refused(answer, "conflict", status=409)
    assert desk.state() == before


def test_an_empty_batch_cannot_be_sealed_and_a_sealed_one_never_changes(desk: Desk) -> None:
    seal = f"/v1/batches/{desk.batch}/seal"
    desk.refused(desk.client.post(seal), "conflict", status=409)
    assert desk.send(["a"], [7]).status_code == 200
    assert desk.client.post(seal).status_code == 200
    before = desk.state()
    desk.refused(desk.client.post(seal), "conflict", status=409)
    desk.refused(desk.send(["b"], [73.194]), "conflict", "73.194", status=409)
    desk.refused(desk.send(["a"], [73.194]), "conflict", "73.194", status=409)
    assert desk.state() == before


def test_missing_labels_stop_the_seal_and_added_labels_repair_it(desk: Desk) -> None:
    batch = desk.open(desk.population, "id-list")
    desk.client.put(f"/v1/batches/{batch}/examples", json={"example_id": ["a", "b", "c"]})
    assert desk.send(["b"], [73.194], batch).status_code == 200
    before = desk.state(batch)
    problem = desk.refused(desk.client.post(f"/v1/batches/{batch}/seal"), "missing-labels", "73.194", status=409)
    assert problem["examples_without_label"] == ["a", "c"]
    assert desk.state(batch) == before
    assert desk.client.get(f"/v1/batches/{batch}").json()["closed"], "to ingest keys, however a seal ended"
    assert desk.send(["a", "c"], [1, 2], batch).status_code == 200
    assert desk.client.post(f"/v1/batches/{batch}/seal").json()["examples"] == 3


def test_missing_labels_with_a_value_take_it_and_nobody_is_told_how_many(desk: Desk) -> None:
    population = desk.make("returns", missing_label="5")
    answers = []
    for prefix, labels in (("x", [7, 8, 9]), ("y", [7]), ("z", [])):
        batch = desk.open(population, "id-list")
        ids = [f"{prefix}{i}" for i in range(3)]
        desk.client.put(f"/v1/batches/{batch}/examples", json={"example_id": ids})
        if labels:
            desk.send(ids[: len(labels)], labels, batch)
        answers.append(desk.client.post(f"/v1/batches/{batch}/seal"))
    shown = [{k: v for k, v in a.json().items() if k not in ("id", "created", "sealed", "closed")} for a in answers]
    assert shown[0] == shown[1] == shown[2]
    assert shown[0]["examples"] == 3


def test_an_overlap_is_refused_and_the_same_examples_are_that_batch(desk: Desk) -> None:
    assert desk.send(["a", "b", "c"], [1, 2, 3]).status_code == 200
    assert desk.client.post(f"/v1/batches/{desk.batch}/seal").status_code == 200
    renamed = desk.make("shop under another name")
    other_case = desk.make("shop in capitals", label="REVENUE")
    for population in (desk.population, renamed, other_case):
        partial, same, more = (desk.open(population) for _ in range(3))
        assert desk.send(["c", "d"], [73.194, 73.194], partial).status_code == 200
        assert desk.send(["c", "b", "a"], [73.194, 73.194, 73.194], same).status_code == 200
        assert desk.send(["a", "b", "c", "d"], [1, 2, 3, 4], more).status_code == 200
        before = desk.state(partial, same, more)
        for batch, code in ((partial, "overlapping-batch"), (same, "same-examples"), (more, "overlapping-batch")):
            problem = desk.refused(desk.client.post(f"/v1/batches/{batch}/seal"), code, "73.194", status=409)
            assert desk.batch in problem["detail"]
        assert desk.state(partial, same, more) == before
    # another label of the same people is another scope
    weeks = desk.open(desk.make("weeks worked", label="weeks"))
    assert desk.send(["a", "b", "c"], [1, 2, 3], weeks).status_code == 200
    assert desk.client.post(f"/v1/batches/{weeks}/seal").status_code == 200


def _open(party: LabelsParty, ids: list[str], population: str) -> str:
    """An open batch of `ids` in the population of an earlier `sealed_batch`."""
    s = party.services
    owner = s.database.read("p", lambda c: s.populations.get(c, population))
    batch = s.database.write("b", lambda c: s.batches.create(c, owner, "public"))
    s.intake.add_labels(batch.id, pa.table({"example_id": ids, "label": [1.0] * len(ids)}), owner=True)
    return batch.id


def test_a_seal_that_was_overtaken_by_an_overlapping_one_is_refused(
    party_on: LabelsParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    party_on.sealed_batch(pa.table({"example_id": ["z"], "label": [1.0]}))
    slow, fast = (_open(party_on, ids, "shop") for ids in (["a", "b"], ["b", "c"]))
    sealer = party_on.services.sealer
    sort, overtaken = sealer.sort.of, []

    def overtake(*arguments: Any) -> Any:
        if not overtaken:  # after the slow seal has looked for overlaps, before it commits
            overtaken.append(fast)
            sealer.seal(fast, "test")
        return sort(*arguments)

    monkeypatch.setattr(sealer.sort, "of", overtake)
    with pytest.raises(OverlappingBatch, match=fast):
        sealer.seal(slow, "test")
    states = {
        b: party_on.services.database.read("s", lambda c, b=b: party_on.services.batches.get(c, b)[0].state)
        for b in (slow, fast)
    }
    assert states == {slow: "open", fast: "sealed"}
    assert not [p for p in (party_on.home / "labels" / slow).iterdir() if p.name.startswith("sealed")]


def test_of_six_seals_of_the_same_examples_at_once_one_wins(party_on: LabelsParty) -> None:
    party_on.sealed_batch(pa.table({"example_id": ["z"], "label": [1.0]}))
    batches = [_open(party_on, ["a", "b", "c"], "shop") for _ in range(6)]

    def seal(batch: str) -> str:
        try:
            party_on.services.sealer.seal(batch, "test")
        except SameExamples as same:
            return same.batch
        return batch

    with ThreadPoolExecutor(6) as pool:
        winners = set(pool.map(seal, batches))
    assert len(winners) == 1
    events = party_on.services.database.read("e", lambda c: party_on.services.audit.events(c, kind="batch-sealed"))
    assert len(events) == 2
