"""Calls of several clients at once about one batch, over real connections: one effect, and each is told the truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import httpx
import pytest

from label_dp.errors import Conflict
from tests.support.labels import LabelsParty, label_table
from tests.support.serving import serving

CLIENTS = 8


class Crowd:
    """Owners with a connection each, who make their calls at the same moment."""

    def __init__(self, url: str, party: LabelsParty) -> None:
        self.party = party
        _, key = party.services.apikeys.create("owner", None)
        headers = {"Authorization": f"Bearer {key}"}
        self.clients = [httpx.Client(base_url=url, headers=headers, timeout=60) for _ in range(CLIENTS)]
        body = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "3"}
        assert self.clients[0].post("/v1/populations", json=body).status_code == 201

    def batch(self, *ids: str, sealed: bool = False) -> str:
        batch = str(self.clients[0].post("/v1/populations/shop/batches", json={"presence": "public"}).json()["id"])
        if ids:
            self.clients[0].post(
                f"/v1/batches/{batch}/labels", json={"example_id": list(ids), "label": [1] * len(ids)}
            ).raise_for_status()
        if sealed:
            self.clients[0].post(f"/v1/batches/{batch}/seal").raise_for_status()
        return batch

    def at_once(self, call: Callable[[httpx.Client, int], httpx.Response]) -> list[httpx.Response]:
        together = Barrier(CLIENTS)

        def one(number: int) -> httpx.Response:
            together.wait(30)
            return call(self.clients[number], number)

        with ThreadPoolExecutor(CLIENTS) as pool:
            return list(pool.map(one, range(CLIENTS)))

    def events(self, kind: str) -> int:
        s = self.party.services
        return len(s.database.read("e", lambda c: s.audit.events(c, kind=kind)))


@pytest.fixture
def crowd(party_on: LabelsParty) -> Any:
    party_on.client()  # starts the application
    with serving(party_on.client().app) as url:
        found = Crowd(url, party_on)
        yield found
        for client in found.clients:
            client.close()


def codes(answers: list[httpx.Response]) -> Counter[tuple[int, str]]:
    return Counter((a.status_code, str(a.json().get("code", "")) if a.is_error else "") for a in answers)


def test_of_seals_of_one_batch_at_once_one_is_done(crowd: Crowd) -> None:
    batch = crowd.batch("a", "b")
    answers = crowd.at_once(lambda client, _: client.post(f"/v1/batches/{batch}/seal"))
    assert codes(answers) == {(200, ""): 1, (409, "conflict"): CLIENTS - 1}
    assert crowd.events("batch-sealed") == 1


def test_one_seal_repeated_at_once_is_one_seal_with_one_answer(crowd: Crowd) -> None:
    batch = crowd.batch("a", "b")
    key = {"Idempotency-Key": "the-same"}
    answers = crowd.at_once(lambda client, _: client.post(f"/v1/batches/{batch}/seal", headers=key))
    assert set(codes(answers)) <= {(200, ""), (409, "in-flight")}
    assert len({a.content for a in answers if a.status_code == 200}) == 1
    assert crowd.events("batch-sealed") == 1


def test_a_seal_that_its_repetition_overtook_gets_its_answer(party_on: LabelsParty) -> None:
    """The repetition runs as a whole after the first call saw no earlier answer; another key is in conflict."""
    services = party_on.services
    party_on.sealed_batch(label_table(5))  # declares the population
    shop = services.database.read("test.shop", lambda c: services.populations.find(c, "shop"))
    assert shop is not None
    batch = services.database.write("test.batch", lambda c: services.batches.create(c, shop, "public")).id
    services.intake.add_labels(batch, label_table(20, prefix="later"), owner=True)

    def seal(key: str) -> Any:
        call = services.idempotency.call("owner", key, f"/v1/batches/{batch}/seal", lambda: b"", batch)
        return services.sealer.seal(batch, "test", call)

    usual, overtaken = services.database.fault, list[Any]()

    def overtake(point: str) -> None:
        usual(point)
        if point == "seal.close:after-commit":
            services.database.fault = usual
            overtaken.append(seal("the-same"))

    services.database.fault = overtake
    assert seal("the-same") == overtaken[0]
    assert seal("the-same") == overtaken[0]
    with pytest.raises(Conflict, match="sealed"):
        seal("another")


def test_of_releases_of_one_batch_at_once_one_is_charged(crowd: Crowd) -> None:
    batch = crowd.batch("a", "b", sealed=True)
    answers = crowd.at_once(lambda client, _: client.post(f"/v1/batches/{batch}/releases", json={"epsilon": "1"}))
    assert codes(answers) == {(202, ""): 1, (409, "already-released"): CLIENTS - 1}
    assert crowd.party.spent(batch) == "1"


def test_additional_releases_at_once_stop_exactly_at_the_lifetime(crowd: Crowd) -> None:
    batch = crowd.batch("a", "b", sealed=True)
    body = {"epsilon": "1", "additional_release": True}
    answers = crowd.at_once(lambda client, _: client.post(f"/v1/batches/{batch}/releases", json=body))
    assert codes(answers) == {(202, ""): 3, (403, "budget-exceeded"): CLIENTS - 3}
    assert crowd.party.spent(batch) == "3"
    assert len({a.json()["id"] for a in answers if a.status_code == 202}) == 3


def test_a_seal_and_uploads_at_once_agree_on_what_was_sealed(crowd: Crowd) -> None:
    batch = crowd.batch("a")

    def call(client: httpx.Client, number: int) -> httpx.Response:
        if number == 0:
            return client.post(f"/v1/batches/{batch}/seal")
        return client.post(f"/v1/batches/{batch}/labels", json={"example_id": [f"b{number}"], "label": [number]})

    seal, *uploads = crowd.at_once(call)
    assert set(codes(uploads)) <= {(200, ""), (409, "conflict")}
    taken = sum(a.status_code == 200 for a in uploads)
    if seal.status_code == 200:
        assert seal.json()["examples"] == 1 + taken
    else:  # uploads went on under it
        assert codes([seal]) == {(503, "unavailable"): 1}


def test_of_uploads_of_one_id_at_once_one_is_taken(crowd: Crowd) -> None:
    batch = crowd.batch()

    def call(client: httpx.Client, number: int) -> httpx.Response:
        ids = ["shared", f"own-{number}"]
        return client.post(f"/v1/batches/{batch}/labels", json={"example_id": ids, "label": [number, number]})

    answers = crowd.at_once(call)
    assert codes(answers) == {(200, ""): 1, (409, "duplicate-id"): CLIENTS - 1}
    sealed = crowd.clients[0].post(f"/v1/batches/{batch}/seal").json()
    assert sealed["examples"] == 2


def test_overlapping_batches_sealed_at_once_leave_one(crowd: Crowd) -> None:
    batches = [crowd.batch("shared", f"own-{i}") for i in range(CLIENTS)]
    answers = crowd.at_once(lambda client, number: client.post(f"/v1/batches/{batches[number]}/seal"))
    assert codes(answers) == {(200, ""): 1, (409, "overlapping-batch"): CLIENTS - 1}
    assert crowd.events("batch-sealed") == 1


def test_a_release_of_an_open_batch_is_refused_and_costs_nothing(crowd: Crowd) -> None:
    batch = crowd.batch("a")
    answer = crowd.clients[0].post(f"/v1/batches/{batch}/releases", json={"epsilon": "1"})
    assert codes([answer]) == {(409, "conflict"): 1}
    assert crowd.party.spent(batch) == "0"
