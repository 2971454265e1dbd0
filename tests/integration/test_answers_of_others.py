"""An answer belongs to who asked: no other audience learns of a predictor's query or value, by any road."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from label_dp.documents.canonical import canonical_bytes
from label_dp.documents.signing import SigningKey
from tests.support.calibrations import records, score_table
from tests.support.labels import LabelsParty
from tests.support.predicting import ask, events, made, payload, tables, with_features
from tests.support.receipts import first_receipt

pytestmark = pytest.mark.extended

QUERY = {"x": 3.5, "sector": "b"}
AUDIENCES = ["features-party", "other"]


class World:
    """Two audiences of one population, and a predictor that both may ask."""

    def __init__(self, party: LabelsParty) -> None:
        self.party, self.owner, self.auditor = party, party.client(), party.client("auditor")
        self.ours, self.other = (party.client("features", name) for name in AUDIENCES)
        self.labels, features = tables(60)
        self.batch = with_features(party, self.labels, features, audiences=AUDIENCES)
        self.predictor = made(party, self.batch)

    def ask(self, client: TestClient, query: dict[str, Any] = QUERY) -> bytes:
        answer = client.post(f"/v1/predictors/{self.predictor}/predict", json={"query": query})
        assert answer.status_code == 200, answer.text
        return bytes(answer.content)

    def seen(self, client: TestClient, answer: str) -> list[int]:
        """Whether the caller is shown an answer: in the list, by id, its document, as a cursor."""
        listed = client.get("/v1/answers").json()
        paths = (f"/v1/answers/{answer}", f"/v1/answers/{answer}/document", f"/v1/answers?cursor={answer}")
        return [200 if answer in [a["id"] for a in listed] else 404, *(client.get(p).status_code for p in paths)]


@pytest.fixture
def world(database_url: str, tmp_path: Path) -> Iterator[World]:
    with LabelsParty(tmp_path / "labels-party", database_url=database_url, worker=False) as party:
        yield World(party)


def test_an_audience_never_reads_what_another_asked(world: World) -> None:
    envelope = world.ask(world.ours)
    answer = payload(envelope)["id"]
    assert world.seen(world.ours, answer) == [200] * 4
    assert world.seen(world.owner, answer) == [200] * 4
    assert world.seen(world.other, answer) == [404] * 4
    nothing, hidden = (world.other.get(f"/v1/answers/{name}").json() for name in ("ans_nothing", answer))
    assert hidden["detail"] == nothing["detail"].replace("ans_nothing", answer)
    receipt = {"payload": "", "payloadType": "x", "signatures": []}
    answers = [world.other.post(f"/v1/answers/{name}/receipt", json=receipt) for name in ("ans_nothing", answer)]
    assert answers[0].status_code == answers[1].status_code
    assert world.ours.get(f"/v1/answers/{answer}").json()["audiences"] == ["features-party"]


def test_what_the_owner_asked_is_the_owners(world: World) -> None:
    answer = ask(world.party, world.predictor, QUERY).answer
    for client in (world.ours, world.other):
        assert world.seen(client, answer) == [404] * 4
    assert world.seen(world.owner, answer) == [200] * 4


def test_an_equal_query_gets_the_same_answer_free_and_on_record(world: World) -> None:
    first = world.ask(world.ours)
    answer = payload(first)["id"]
    spent = world.party.spent(world.batch)
    assert world.ask(world.other, {"x": 3.1, "sector": "a"}) != first  # asking anything else shows nothing of it
    assert world.seen(world.other, answer) == [404] * 4
    before = world.party.spent(world.batch)
    assert float(before) == 2 * float(spent)
    for _ in range(2):
        assert world.ask(world.other, {"sector": "b", "x": 3.5}) == first
        assert world.seen(world.other, answer) == [200] * 4
    assert world.party.spent(world.batch) == before
    (shared,) = events(world.party, "answer-shared", world.batch)
    assert (shared.audiences, shared.subject.work, shared.split.total.nano) == (("other",), answer, 0)
    for client, name in ((world.ours, "features-party"), (world.other, "other")):  # who else asked is not told
        (entry,) = [a for a in client.get("/v1/answers").json() if a["id"] == answer]
        assert entry["audiences"] == client.get(f"/v1/answers/{answer}").json()["audiences"] == [name]
    assert sorted(world.owner.get(f"/v1/answers/{answer}").json()["audiences"]) == AUDIENCES


def test_only_who_was_handed_an_answer_finds_it_and_can_send_a_receipt(world: World) -> None:
    """An owner may ask, and hand the signed document on as a file. Only who has it can name its digest."""
    services, key = world.party.services, SigningKey.generate()
    given = ask(world.party, world.predictor, QUERY)
    digest = digest_of(payload(given.envelope))
    services.receipts.register("features-party", key.public, "test")

    def sent(answer: str, manifest_digest: str) -> tuple[int, str]:
        receipt = first_receipt(answer, manifest_digest, services.key.public.id).signed(key)
        told = world.ours.post(f"/v1/answers/{answer}/receipt", json=receipt)
        text = json.dumps({k: v for k, v in told.json().items() if k not in ("instance", "request_id")})
        return told.status_code, text.replace(answer, "ID")

    nothing = sent("ans_nothing", digest)
    assert nothing[0] == 404
    assert sent(given.answer, "0" * 64) == nothing
    assert world.ours.post(f"/v1/answers/{given.answer}/receipt", json={}).status_code == 404
    assert sent(given.answer, digest)[0] == 201
    assert sent(given.answer, digest)[0] == 200


def test_an_audience_that_may_not_ask_is_shown_nothing(world: World) -> None:
    answer = payload(world.ask(world.ours))["id"]
    stranger = world.party.client("features", "stranger")
    denied = stranger.post(f"/v1/predictors/{world.predictor}/predict", json={"query": QUERY})
    assert denied.status_code == 404
    assert world.seen(stranger, answer) == [404] * 4


# --- audit events and exports ----------------------------------------------------------------------------------


def exported(world: World) -> bytes:
    document = json.loads(world.auditor.get("/v1/audit/export").content)
    return base64.b64decode(document["payload"])


def test_an_export_names_no_query_that_could_be_guessed(world: World) -> None:
    """Every query of a small grid, hashed in every form that this or an earlier version had, is sought in it."""
    envelope = world.ask(world.ours)
    codes = world.party.services.database.read(
        "t", lambda c: world.party.services.companions.predictors.get(c, world.predictor)
    ).plan.features.query(QUERY)
    text = exported(world).decode()
    (charge,) = events(world.party, "release-charged", world.batch)
    told = charge.details["query"]
    assert told in text
    guesses = {hashlib.sha256(canonical_bytes(list(codes))).hexdigest()}
    query = payload(envelope)["parameters"]["query"]
    for content in (query, [*codes]):
        for prefix in (b"", world.predictor.encode(), world.predictor.encode() + b"\0"):
            guesses.add(hashlib.sha256(prefix + canonical_bytes(content)).hexdigest())
    assert not any(guess in text for guess in guesses)
    assert told != hashlib.sha256(canonical_bytes(list(codes))).hexdigest()


def test_equal_queries_of_two_predictors_cannot_be_linked(world: World) -> None:
    world.ask(world.ours)
    world.predictor = made(world.party, world.batch)
    world.ask(world.ours)
    macs = [e.details["query"] for e in events(world.party, "release-charged", world.batch)]
    assert len(set(macs)) == len(macs) == 2


def digest_of(document: dict[str, Any]) -> str:
    return hashlib.sha256(canonical_bytes(document)).hexdigest()


@pytest.mark.parametrize("kind", ["prediction", "median"])
def test_the_digest_of_an_answer_cannot_be_guessed_either(kind: str, world: World) -> None:
    """An export names the SHA-256 of the document. Who guesses query and value still lacks its random salt."""
    if kind == "prediction":
        document = payload(world.ask(world.ours))
    else:
        asked = {"epsilon": "1", "additional_release": True}
        answer = world.owner.post(f"/v1/batches/{world.batch}/medians", json=asked).json()["id"]
        assert world.party.services.pipeline.run(answer)
        document = payload(world.owner.get(f"/v1/answers/{answer}/document").content)
    (told,) = events(world.party, "answer-published", world.batch)
    assert told.details["sha256"] == digest_of(document)  # the control: all of it gives the digest
    assert len(document["salt"]) == 32
    without = {name: value for name, value in document.items() if name != "salt"}
    for guess in (without, without | {"salt": None}, without | {"salt": "0" * 32}):
        assert digest_of(guess) != told.details["sha256"]


def test_no_two_answers_have_one_salt(world: World) -> None:
    salts = {payload(world.ask(world.ours, {"x": x}))["salt"] for x in (1, 3, 6)}
    assert len(salts) == 3


def test_small_integers_under_a_plain_hash_would_be_found() -> None:
    """The control: what the search above looks for is found in seconds where it stands."""
    text = hashlib.sha256(canonical_bytes([33, 2])).hexdigest()
    grid = itertools.product(range(100), range(4))
    assert any(hashlib.sha256(canonical_bytes(list(codes))).hexdigest() == text for codes in grid)


def test_the_auditor_sees_state_and_cost_but_no_query(world: World) -> None:
    answer = payload(world.ask(world.ours))["id"]
    shown = world.auditor.get(f"/v1/answers/{answer}").json()
    assert shown["epsilon"]["total"] == "0.5"
    assert "query" not in shown["parameters"]
    assert "query" in world.owner.get(f"/v1/answers/{answer}").json()["parameters"]


def test_what_an_audience_orders_for_itself_stands_in_no_export(world: World) -> None:
    path = f"/v1/batches/{world.batch}"
    assert world.owner.put(f"{path}/calibration-allowance", json={"epsilon": "1"}).status_code == 200
    params = {"epsilon": "0.5", "additional_release": True, "scores": "-50:50:977"}
    asked = world.other.post(f"{path}/calibrations", params=params, json=records(score_table(world.labels)))
    assert asked.status_code == 202, asked.text
    answer = asked.json()["id"]
    assert world.party.services.pipeline.run(answer)
    assert answer in exported(world).decode()
    assert "-50:50:977" not in exported(world).decode()
    assert world.seen(world.other, answer) == [200] * 4
    assert world.seen(world.ours, answer) == [404] * 4


@pytest.mark.parametrize("end", ["cap", "retired"])
def test_guessing_queries_of_another_costs_and_shows_nothing(world: World, end: str) -> None:
    """A guess that misses is charged. Where it cannot be, one that hits is refused as well, in the same words."""
    first = world.ask(world.ours)
    if end == "retired":
        world.party.services.companions.predictors.retire(world.predictor, "test")
    else:
        for x in range(3):  # the cap pays for four
            world.ask(world.ours, {"x": x, "sector": "c"})

    def told(query: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        answer = world.other.post(f"/v1/predictors/{world.predictor}/predict", json={"query": query})
        return answer.status_code, {k: v for k, v in answer.json().items() if k != "request_id"}

    miss = told({"x": 9, "sector": "a"})
    assert miss[0] in (403, 409)
    assert told(QUERY) == miss
    assert world.seen(world.other, payload(first)["id"]) == [404] * 4
    assert not events(world.party, "answer-shared", world.batch)
    assert world.ask(world.ours) == first  # whose it is gets it again
