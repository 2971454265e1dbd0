"""Small uploads that wait at the same time: one object, one run and one transaction, and each answered as if alone."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from label_dp.errors import LabelDPError
from label_dp.store.idempotency import IdempotentCall
from labels_party.labels.batch_index import look
from labels_party.labels.batches import LABELS, RUNS, SEALED
from labels_party.labels.compaction import FACTOR
from labels_party.labels.formats.formats import JSON
from labels_party.labels.seal import SealedLabels
from labels_party.labels.small_uploads import Small
from labels_party.labels.vault import LabelVault
from tests.support.labels import LabelsParty

pytestmark = pytest.mark.extended

Labels = dict[str, Any]


class Source:
    def __init__(self, text: bytes) -> None:
        self.left = text

    def read(self) -> bytes:
        found, self.left = self.left, b""
        return found


class Shop:
    def __init__(self, party: LabelsParty, ids: list[str] | None = None) -> None:
        self.services, self.owner = party.services, party.client("owner")
        body = {"name": "shop", "label": "r", "domain": "0:10", "lifetime_epsilon": "3", "missing_label": "0"}
        shop = self.owner.post("/v1/populations", json=body).json()["id"]
        presence = {"presence": "public" if ids is None else "id-list"}
        self.batch = str(self.owner.post(f"/v1/populations/{shop}/batches", json=presence).json()["id"])
        self.path = f"/v1/batches/{self.batch}"
        if ids is not None:
            assert self.owner.put(f"{self.path}/examples", json={"example_id": ids}).status_code == 200

    def small(self, labels: Labels | bytes, owner: bool = False, key: str | None = None, who: str = "k") -> Small:
        records = [{"example_id": i, "label": v} for i, v in labels.items()] if isinstance(labels, dict) else None
        text = labels if isinstance(labels, bytes) else json.dumps({"records": records}).encode()
        mac = sha256(f"{who} {text!r}".encode()).hexdigest()
        call = IdempotentCall(self.services.idempotency, who, key, mac, self.batch)
        spill = self.services.home.spill
        return Small(lambda fields, classes: JSON.chunks(Source(text), fields, spill, classes=classes), call, owner)

    def take(self, *uploads: Small) -> list[Any]:
        """What each is answered: how many rows were accepted, or the code of its problem."""
        found: list[Any] = self.services.intake.add_small(self.batch, uploads)
        return [a.code if isinstance(a, LabelDPError) else a[1]["accepted"] for a in found]

    def segments(self, kind: str) -> list[Any]:
        s = self.services
        return s.database.read("test.segments", lambda c: s.batches.segments(c, self.batch, kind))

    def waiting(self) -> list[dict[str, Any]]:
        return [u for u in self.owner.get(f"{self.path}/set-aside").json() if u["decision"] is None]

    def decide(self, upload: str, decision: str) -> None:
        assert self.owner.post(f"{self.path}/set-aside/{upload}", json={"decision": decision}).status_code == 200

    def sealed(self) -> Labels:
        answer = self.owner.post(f"{self.path}/seal")
        assert answer.status_code == 200, answer.text
        s = self.services
        chunks = [c for found in self.segments(SEALED) for c in SealedLabels(s.vault, found.key).chunks()]
        return {i: int(p) for ids, places in chunks for i, p in zip(ids.to_pylist(), places, strict=True)}


@pytest.fixture
def shop(party_on: LabelsParty) -> Shop:
    return Shop(party_on)


def test_they_are_one_object_one_run_and_each_is_answered(shop: Shop) -> None:
    assert shop.take(*(shop.small({f"{n}-{i}": i for i in range(n + 1)}) for n in range(5))) == [1, 2, 3, 4, 5]
    assert [(s.rows, s.start) for s in shop.segments(LABELS)] == [(15, 0)]
    assert [s.rows for s in shop.segments(RUNS)] == [15]
    assert shop.sealed() == {f"{n}-{i}": i for n in range(5) for i in range(n + 1)}


def test_what_is_wrong_with_one_is_said_to_that_one(shop: Shop) -> None:
    good, twice = {"a": 1}, b'{"records": [{"example_id": "b", "label": 1}, {"example_id": "b", "label": 2}]}'
    uploads = [
        shop.small(good),
        shop.small({"c": "many"}),
        shop.small(twice),
        shop.small(b"{"),
        shop.small(b'{"records": []}'),
    ]
    assert shop.take(*uploads, shop.small({"d": 2}, owner=True)) == [
        1, "invalid-rows", "invalid-rows", "invalid-file", "invalid-file", 1,
    ]  # fmt: skip
    assert shop.sealed() == {"a": 1, "d": 2}


def test_an_id_that_is_not_listed_is_refused(party_on: LabelsParty) -> None:
    shop = Shop(party_on, ["a", "b"])
    assert shop.take(shop.small({"a": 1}), shop.small({"x": 1})) == [1, "invalid-rows"]
    assert shop.sealed() == {"a": 1, "b": 0}


def test_of_two_with_one_id_the_second_is_set_aside_or_refused(shop: Shop) -> None:
    shop.take(shop.small({"a": 1}))
    uploads = [shop.small({"b": 2}), shop.small({"b": 3, "c": 3}), shop.small({"c": 4}), shop.small({"a": 5})]
    assert shop.take(*uploads, shop.small({"a": 6, "d": 6}, owner=True)) == [1, 2, 1, 1, "duplicate-id"]
    assert sorted((u["rows"], u["examples"]) for u in shop.waiting()) == [(1, []), (1, ["a"]), (2, ["b"])]
    for upload in shop.waiting():
        shop.decide(upload["id"], "replace" if upload["rows"] == 1 else "drop")
    assert shop.sealed() == {"a": 5, "b": 2, "c": 4}


@pytest.mark.parametrize("order", [("drop", "replace"), ("drop", "drop"), ("replace", "drop")])
def test_a_common_object_with_one_that_was_set_aside_goes_at_the_seal(shop: Shop, order: tuple[str, str]) -> None:
    shop.take(shop.small({"a": 1, "b": 1}))
    assert shop.take(shop.small({"a": 2}), shop.small({"b": 3})) == [1, 1]
    for upload, decision in zip(sorted(shop.waiting(), key=lambda u: u["examples"]), order, strict=True):
        shop.decide(upload["id"], decision)
    uploads = [s.key for s in shop.segments(LABELS)]
    assert shop.sealed() == {"a": 2 if order[0] == "replace" else 1, "b": 3 if order[1] == "replace" else 1}
    shop.services.erasures.finish()
    assert not any((shop.services.vault.objects.room / key).exists() for key in uploads)


def test_a_repeated_call_has_one_effect(shop: Shop) -> None:
    first, other = shop.small({"a": 1}, key="1"), shop.small({"a": 1}, key="1", who="somebody else")
    assert shop.take(first, shop.small({"a": 1}, key="1"), other) == [1, 1, 1]
    assert len(shop.waiting()) == 1  # of the other caller, whose key is another one
    assert shop.take(shop.small({"a": 1}, key="1"), shop.small({"a": 2}, key="1")) == [1, "idempotency-conflict"]
    shop.decide(shop.waiting()[0]["id"], "drop")
    assert shop.sealed() == {"a": 1}


def test_file_operations_do_not_depend_on_which_ids_have_a_record(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Invariant no-oracle: the same requests to the store, whichever uploads are set aside, and in the call after it
    too."""
    # merges of runs have a thread of their own, for which no sender waits
    monkeypatch.setattr(shop.services.intake.compaction, "run", lambda *_: None)
    shop.take(shop.small({"a": 1, "b": 1}))
    done: list[str] = []
    for name in ("put", "put_run", "run", "scan", "delete"):
        real: Callable[..., Any] = getattr(LabelVault, name)
        monkeypatch.setattr(LabelVault, name, lambda *a, _name=name, _real=real: (done.append(_name), _real(*a))[1])
    shop.take(shop.small({"z": 1}))
    seen = []
    probes = ([{"c": 1}, {"d": 1}], [{"a": 1}, {"e": 1}], [{"a": 1}, {"b": 1}], [{"f": 1}, {"f": 1}], [{"a": 1}])
    for number, uploads in enumerate(probes):
        done.clear()
        assert shop.take(*(shop.small(labels) for labels in uploads)) == [1] * len(uploads)
        assert shop.take(shop.small({f"next {number}": 1})) == [1]
        seen.append(sorted(done))
    assert seen == [["put", "put", "put_run", "put_run", "run", "run"]] * len(probes)


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("asides", [(), (3,), (0, 1, 5, 6), tuple(range(FACTOR))])
def test_what_is_merged_does_not_depend_on_which_ids_have_a_record(
    shop: Shop, asides: tuple[int, ...], alone: bool
) -> None:
    """Nor how many runs the next upload is looked at with, over two merges; a decision still finds its digests."""
    intake = shop.services.intake

    def send(labels: Labels) -> None:
        small = shop.small(labels)
        if alone:
            intake.add_labels(shop.batch, small.chunks, small.call, owner=False)
        else:
            assert shop.take(small) == [len(labels)]
        intake.compaction.wait()

    def opened() -> int:
        services = shop.services
        return len(look(services.database, services.batches, services.vault, shop.batch, owner=False).taken)

    shop.take(shop.small({f"taken {n}": 1 for n in range(64)}, owner=True))
    counted: Labels = {f"taken {n}": 1 for n in range(64)}
    seen = []
    for n in range(2 * FACTOR):
        labels = {f"new {n}": n % 11} if n % FACTOR not in asides else {f"taken {n}": 2, f"also {n}": 3}
        send(labels)
        counted |= labels if n % FACTOR not in asides else {}
        seen.append(opened())
    assert seen == [1 + n for n in (1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 5, 6, 7, 8, 2)]
    for upload in shop.waiting():
        if upload["examples"] == ["taken 0"]:
            shop.decide(upload["id"], "replace")
            counted |= {"taken 0": 2, "also 0": 3}
        else:
            shop.decide(upload["id"], "drop")
    assert shop.sealed() == counted


@pytest.mark.parametrize("seed", range(12))
def test_any_mixture_is_answered_as_some_order_of_single_uploads_would_be(shop: Shop, seed: int) -> None:
    rng = random.Random(seed)
    counted: Labels = {}
    waiting: set[str] = set()
    for _ in range(4):
        uploads = [
            ({f"i{n}": rng.randrange(11) for n in rng.sample(range(40), rng.randint(1, 4))}, rng.random() < 0.3)
            for _ in range(rng.randint(1, 6))
        ]
        answers = shop.take(*(shop.small(labels, owner) for labels, owner in uploads))
        aside = 0
        # the owner's that have an id with a record are looked at last, one by one
        for labels, owner in uploads:
            if not (counted.keys() | (set() if owner else waiting)) & labels.keys():
                counted |= labels
            elif not owner:
                aside += 1
            if not owner:  # for such keys an id is taken once any upload had it
                waiting |= labels.keys()
        assert [a == "duplicate-id" or a == len(u[0]) for a, u in zip(answers, uploads, strict=True)]
        assert len(shop.waiting()) == aside
        for upload in shop.waiting():
            shop.decide(upload["id"], "drop")
    assert shop.sealed() == counted


@pytest.mark.parametrize("kind", ["csv", "json", "arrow", "parquet"])
def test_texts_wait_together_and_tables_that_may_swell_do_not(
    kind: str, party_on: LabelsParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, seen = Shop(party_on), []
    real = shop.services.intake.small_uploads.attempt
    monkeypatch.setattr(
        shop.services.intake.small_uploads,
        "attempt",
        lambda batch, uploads, runs: (seen.append(1), real(batch, uploads, runs))[1],
    )
    table, sink = pa.table({"example_id": ["a", "b"], "label": [1.0, 2.0]}), io.BytesIO()
    if kind == "parquet":
        pq.write_table(table, sink)
    elif kind == "arrow":
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    else:
        sink.write(json.dumps(table.to_pydict()).encode() if kind == "json" else b"example_id,label\na,1\nb,2\n")
    types = {"csv": "text/csv", "json": "application/json", "arrow": "application/vnd.apache.arrow.stream"}
    headers = {"Content-Type": types.get(kind, "application/vnd.apache.parquet")}
    answer = shop.owner.post(f"{shop.path}/labels", content=sink.getvalue(), headers=headers)
    assert (answer.status_code, answer.json()["accepted"]) == (200, 2)
    assert bool(seen) == (kind in ("csv", "json"))


def test_many_clients_at_once_over_http(party_on: LabelsParty) -> None:
    shop = Shop(party_on)
    keys = [party_on.client("ingest") for _ in range(8)]

    def send(n: int) -> Any:
        body = {"records": [{"example_id": f"{n}", "label": n % 11}, {"example_id": f"also {n}", "label": 3}]}
        return keys[n % 8].post(f"{shop.path}/labels", json=body, headers={"Idempotency-Key": f"call {n}"})

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(send, range(64)))
        assert [(a.status_code, a.json()) for a in answers] == [(200, {"batch": shop.batch, "accepted": 2})] * 64
        assert [a.json() for a in pool.map(send, range(64))] == [a.json() for a in answers]  # repeated: no effect
    assert shop.sealed() == {f"{n}": n % 11 for n in range(64)} | {f"also {n}": 3 for n in range(64)}
