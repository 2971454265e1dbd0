"""`Idempotency-Key` at the features party: one effect, one answer, whatever is repeated."""

from __future__ import annotations

import hmac
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from features_party.api.context import claimed
from features_party.bootstrap import CLAIM_SECONDS
from features_party.storage import tables
from features_party.tables.feature_tables import FeatureTables
from label_dp.errors import IdempotencyConflict, IdempotencyInFlight
from label_dp.store import idempotency
from label_dp.store.database import Database
from label_dp.store.idempotency import Claim, IdempotencyKeys, IdempotentCall, Reply
from tests.support.features_api import PARQUET, WORLD, Api, form, message_files, running
from tests.support.messages import Sender
from tests.support.upload_formats import parquet

KEY = {"Idempotency-Key": "day-1"}


@pytest.fixture
def sender() -> Sender:
    return Sender()


@pytest.fixture
def api(tmp_path: Path, sender: Sender) -> Iterator[Api]:
    with running(tmp_path, sender, worker=False) as started:
        yield started


def test_a_training_is_asked_for_once(api: Api, sender: Sender, tmp_path: Path) -> None:
    api.accept(message_files(sender, tmp_path / "sent"))
    body = {"feature_table": api.table(), "messages": ["rel_1"]}
    first = api.trainer.post("/v1/trainings", json=body, headers=KEY)
    again = api.trainer.post("/v1/trainings", json=body, headers=KEY)
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json() == again.json()
    assert first.headers["location"] == again.headers["location"]
    other = api.trainer.post("/v1/trainings", json=body | {"model": "linear"}, headers=KEY)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency-conflict")
    assert len(api.trainer.get("/v1/trainings").json()) == 1
    # keys belong to an API key
    assert api.client("trainer").post("/v1/trainings", json=body, headers=KEY).json()["id"] != first.json()["id"]


def test_a_refusal_gives_the_key_back(api: Api, sender: Sender, tmp_path: Path) -> None:
    body = {"feature_table": api.table(), "messages": ["rel_1"]}
    assert api.trainer.post("/v1/trainings", json=body, headers=KEY).status_code == 404
    api.accept(message_files(sender, tmp_path / "sent"))
    assert api.trainer.post("/v1/trainings", json=body, headers=KEY).status_code == 202


def test_uploads_are_stored_once_whatever_the_form_around_them(api: Api, sender: Sender, tmp_path: Path) -> None:
    csv = b"click_id,age\n1,2\n2,3\n"
    path = "/v1/feature-tables?id_column=click_id"
    sent_form = {"files": {"file": ("f.csv", csv, "text/csv")}, "data": {"id_column": "click_id"}, "headers": KEY}
    answers = [api.trainer.post("/v1/feature-tables", **sent_form) for _ in range(2)]  # type: ignore[arg-type]  # one dict for every argument
    assert answers[0].json() == answers[1].json()
    raw = [
        api.trainer.post(path, content=parquet(WORLD.table()), headers=PARQUET | {"Idempotency-Key": "x"})
        for _ in range(2)
    ]
    assert raw[0].json() == raw[1].json()
    changed = api.trainer.post(path, content=csv, headers=PARQUET | {"Idempotency-Key": "x"})
    assert changed.json()["code"] == "idempotency-conflict"
    assert len(api.trainer.get("/v1/feature-tables").json()) == 2
    files = message_files(sender, tmp_path / "sent")
    sent = [api.trainer.post("/v1/messages", files=form(files), headers={"Idempotency-Key": "m"}) for _ in range(2)]
    assert [answer.status_code for answer in sent] == [201, 201]
    assert sent[0].json() == sent[1].json()
    assert api.trainer.post("/v1/messages", files=form(files)).json()["already_accepted"] is True
    assert list(api.services.home.feature_tables.glob(".incoming-*")) == []


def test_a_call_in_flight_is_not_run_twice(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, leave = threading.Event(), threading.Event()
    upload = FeatureTables.upload

    def slow(self: FeatureTables, *arguments: Any) -> Any:
        entered.set()
        assert leave.wait(120)
        return upload(self, *arguments)

    monkeypatch.setattr(FeatureTables, "upload", slow)
    request = {"content": parquet(WORLD.table()), "headers": PARQUET | KEY}
    answers: list[Any] = []
    first = threading.Thread(
        target=lambda: answers.append(api.trainer.post("/v1/feature-tables?id_column=click_id", **request))  # type: ignore[arg-type]  # one dict for every argument
    )
    first.start()
    assert entered.wait(120)
    second = api.trainer.post("/v1/feature-tables?id_column=click_id", **request)  # type: ignore[arg-type]  # one dict for every argument
    assert (second.status_code, second.json()["code"]) == (409, "in-flight")
    leave.set()
    first.join()
    assert answers[0].status_code == 201
    third = api.trainer.post("/v1/feature-tables?id_column=click_id", **request)  # type: ignore[arg-type]  # one dict for every argument
    assert third.json() == answers[0].json()


@pytest.mark.parametrize("key", ["", "x" * 201, "a\tb"])
def test_bad_keys_are_refused(api: Api, key: str) -> None:
    answer = api.trainer.post(
        "/v1/feature-tables?id_column=id", content=b"id,a\n1,2\n", headers=PARQUET | {"Idempotency-Key": key}
    )
    assert answer.status_code == 422
    assert api.trainer.get("/v1/feature-tables").json() == []


class Keys:
    """A party's memory of calls under a clock that is moved by hand."""

    def __init__(self, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_800_000_000.0
        monkeypatch.setattr(idempotency, "time", SimpleNamespace(time=lambda: self.now))
        mac = partial(hmac.new, b"secret", digestmod="sha256")
        self.keys = IdempotencyKeys(database, tables.idempotency, mac, CLAIM_SECONDS)

    def call(self, key: str, body: bytes = b"body") -> IdempotentCall:
        return self.keys.call("k", key, "POST /x", lambda: body)


def test_claims_run_out_with_their_process_and_answers_after_a_month(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(database_url)
    tables.migrate(database)
    world = Keys(database, monkeypatch)
    dead, heir = world.call("one"), world.call("one")
    assert Claim(dead).take() is None
    with pytest.raises(IdempotencyInFlight):
        Claim(heir).take()
    world.now += 3600
    assert Claim(heir).take() is None
    with pytest.raises(IdempotencyInFlight):  # it comes too late: the key is another's
        dead.keep((201, {"whose": "dead"}))
    database.write("test", dead.unclaim)
    assert heir.keep((201, {"whose": "heir"})) == (201, {"whose": "heir"})
    assert dead.keep((201, {"whose": "dead"})) == (201, {"whose": "heir"})
    database.write("test", heir.unclaim)  # an answer that was kept stays
    assert Claim(world.call("one")).take() == (201, {"whose": "heir"})
    with pytest.raises(IdempotencyConflict):
        Claim(world.call("one", b"another")).take()
    world.now += 40 * 86_400
    assert idempotency.forget_old(database, tables.idempotency) == 1
    assert Claim(world.call("one", b"another")).take() is None
    database.dispose()


def test_an_effect_that_was_stored_is_not_had_again_where_its_process_died(api: Api) -> None:
    """The row of a table and the answer of its call are one transaction: a crash lies before both or behind both."""
    stored = api.services.feature_tables

    def effect(call: IdempotentCall) -> Reply:
        return 201, stored.upload(lambda path: path.write_bytes(parquet(WORLD.table())), "click_id", "t", call)

    def call() -> IdempotentCall:
        return api.services.idempotency.call("caller", "k", "POST /x", lambda: b"body")

    died = call()
    Claim(died).take()
    told = effect(died)  # and nothing after it
    assert claimed(call(), effect) == told
    assert effect(call()) == told  # also of one that had not looked before
    assert [table["id"] for table in api.trainer.get("/v1/feature-tables").json()] == [told[1]["id"]]
    assert [path.name for path in api.services.home.feature_tables.iterdir()] == [told[1]["id"]]


def test_what_is_stored_of_a_request_is_a_keyed_mac(api: Api, sender: Sender, tmp_path: Path) -> None:
    api.accept(message_files(sender, tmp_path / "sent"))
    body = {"feature_table": api.table(), "messages": ["rel_1"], "note": "nobody's business"}
    api.trainer.post("/v1/trainings", json=body, headers=KEY)
    t = tables.idempotency
    (mac,) = api.services.database.read("test", lambda c: c.execute(sa.select(t.c.body_mac)).scalars().all())
    assert len(mac) == 64
    keyed = api.services.home.keyed
    assert mac != keyed("other purpose").hexdigest()
    assert keyed("a").hexdigest() == keyed("a").hexdigest() != keyed("b").hexdigest()
