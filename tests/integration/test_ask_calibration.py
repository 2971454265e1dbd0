"""A publisher asks for a calibration of its model: by command line, REST and Python; charged once, however often."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from features_party.companions.asking import ScoreTable, query_of, require_asked
from features_party.receive.labels_service import LabelsService
from label_dp import errors
from label_dp.client.peer import RETRIES
from label_dp.privacy import Epsilon
from label_dp.schemas.calibration import Calibration
from labels_party.storage.tables import work
from tests.support.calibrations import signed, two_scores
from tests.support.features_api import WORLD, Api, message_files, running
from tests.support.features_cli import Shell
from tests.support.labels import LabelsParty
from tests.support.labels_api import is_problem
from tests.support.messages import Sender
from tests.support.serving import serving

pytestmark = pytest.mark.extended

SENDER = Sender()
LABELS = pa.table({"example_id": WORLD.ids, "label": WORLD.labels})


@pytest.fixture(scope="module")
def advertiser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LabelsParty, str, str]]:
    """A labels party whose worker runs, its URL, and our key there."""
    with LabelsParty(tmp_path_factory.mktemp("labels") / "home") as party:
        key = party.services.apikeys.create("features", "features-party")[1]
        with serving(party.client().app) as url:
            yield party, url, key


def allowed(party: LabelsParty, name: str, epsilon: str | None = "2") -> str:
    """Id of a sealed batch of the world's examples, of which audiences may ask for so much."""
    batch = party.sealed_batch(LABELS, name, label=f"label of {name}" if name != "shop" else "revenue")
    if epsilon is not None:
        path = f"/v1/batches/{batch}/calibration-allowance"
        assert party.client().put(path, json={"epsilon": epsilon}).status_code == 200
    return batch


@pytest.fixture
def shell(tmp_path_factory: pytest.TempPathFactory, advertiser: tuple[LabelsParty, str, str]) -> Shell:
    """A publisher with a model, features and scores in files."""
    found = Shell(tmp_path_factory.mktemp("shell"))
    found.env["FEATURES_PARTY_LABELS_API_KEY"] = advertiser[2]
    found.run("pin-key", advertiser[0].services.home.public_key)
    found.run("pin-key", SENDER.public_key(found.folder))
    message_files(SENDER, found.folder / "sent")
    pq.write_table(WORLD.table(), found.folder / "features.parquet")
    scores = two_scores(LABELS).rename_columns(["click_id", "score", "second"])
    pq.write_table(scores, found.folder / "scores.parquet")
    found.run("train", "--message", "sent/m.parquet", *FILES, "--model", "linear", "--out", "model")
    return found


FILES = ("--features", "features.parquet", "--id-column", "click_id")
SCORES = ("--scores", "scores.parquet", "--id-column", "click_id", "--score-column", "score")


def test_a_model_is_calibrated_by_two_commands(shell: Shell, advertiser: tuple[LabelsParty, str, str]) -> None:
    party, url, _ = advertiser
    batch = allowed(party, "shop")
    ask = ("ask-calibration", "--url", url, "--batch", batch, "--epsilon", "0.5", "--model", "model", *FILES)
    told = shell.run(*ask).stdout.splitlines()
    answer = told[0].split()[1].rstrip(":")
    assert told[0] == f"calibration {answer}: ε 0.5; {len(WORLD.ids):,} scores sent"
    assert told[1].startswith("receipts: ")
    assert told[2] == f"apply it: features-party calibrate --map {answer} --model model --out FOLDER"
    again = shell.json(*ask, "--wait", "60")
    assert (again["answer"], again["state"], again["fresh"]) == (answer, "published", False)
    assert (again["kind"], again["batch"], again["epsilon"]["total"]) == ("calibration", batch, "0.5")
    assert party.spent(batch) == "0.5"  # the same scores and terms: charged once
    shell.run("predict", "--model", "model", *FILES, "--out", "p.parquet")
    sent = pq.read_table(shell.folder / "p.parquet")
    columns = ("--scores", "p.parquet", "--id-column", "click_id", "--score-column", "prediction")
    from_file = shell.json("ask-calibration", "--url", url, "--batch", batch, "--epsilon", "0.5", *columns)
    assert (from_file["answer"], from_file["rows"]) == (answer, sent.num_rows)
    assert len(shell.json("audit", "show", "--kind", "answer-accepted")) == 1
    assert "all charged" in shell.run("answers", "show", answer).stdout
    shell.run("calibrate", "--map", answer, "--model", "model", "--out", "after")
    shell.run("train", "--message", "sent/m.parquet", *FILES, "--model", "trees", "--out", "other")
    refusal = shell.refused("calibrate", "--map", answer, "--model", "other", "--out", "x", code=1)
    assert "asked for with the predictions of another model" in refusal
    refused = shell.refused(*ask[:-5], "after", *FILES, code=2)
    assert "calibrated already" in refused
    assert party.spent(batch) == "0.5"
    # another ε is another calibration, and charged on top if so asked
    less = [*ask, "--epsilon", "0.25"]
    assert "carries something already" in shell.refused(*less, code=1)
    only = shell.json(*less, "--additional-release", "--wait", "0")
    assert set(only) == {"answer", "state", "rows", "batch"}
    assert only["answer"] != answer
    assert "pull --url" in shell.run(*less, "--additional-release", "--wait", "0").stdout
    assert shell.json("pull", "--url", url, "--answer", only["answer"], "--wait")["fresh"]
    assert party.spent(batch) == "0.75"


def test_options_and_two_scores_reach_the_labels_party(shell: Shell, advertiser: tuple[LabelsParty, str, str]) -> None:
    party, url, _ = advertiser
    batch = allowed(party, "two")
    ask = ("ask-calibration", "--url", url, "--batch", batch, "--epsilon", "0.5", *SCORES, "--additional-release")
    two = ("--score-2-column", "second", "--numbers", "-2:8:1000", "--option", "cells=2x3")
    found = shell.json(*ask, *two, "--shape", "grid")["parameters"]
    assert (found["shape"], found["options"], found["scores_2"]) == ("grid", {"cells": "2x3"}, "float32")
    assert found["scores"] == "-2:8:1000"
    found = shell.json(*ask, "--loss", "absolute", "--shape", "monotone", "--option", "levels=3")["parameters"]
    about = {"loss": "absolute", "shape": "monotone", "options": {"levels": 3}}
    assert found == about | {"scores": "float32", "scores_2": None}
    assert party.spent(batch) == "1"


def test_refusals_are_sentences_and_charge_nothing(shell: Shell, advertiser: tuple[LabelsParty, str, str]) -> None:
    party, url, _ = advertiser
    batch, unasked = allowed(party, "refused", "0.3"), allowed(party, "unasked", None)
    to = ("ask-calibration", "--url", url, "--epsilon", "0.5")
    ask = (*to, "--batch", batch)
    for other in (unasked, "bat_none"):
        told = shell.refused(*to, "--batch", other, *SCORES, code=1)
        assert f"allow-calibrations {other} --epsilon E" in told
    assert "of which 0.3 is left" in shell.refused(*ask, *SCORES, code=1)
    pq.write_table(pa.table({"click_id": ["a"], "score": [float("nan")]}), shell.folder / "nan.parquet")
    pq.write_table(pa.table({"click_id": ["a", "a"], "score": [1.0, 2.0]}), shell.folder / "twice.parquet")
    bad: list[tuple[tuple[str, ...], int, str]] = [
        ((*ask, *FILES), 2, "--model"),
        ((*ask, *SCORES, "--model", "model"), 2, "--model"),
        ((*ask, *FILES, "--model", "model", "--score-2-column", "x"), 2, "--model"),
        ((*ask, *FILES, "--model", "model", "--shape", "grid"), 2, "two scores"),
        ((*ask, *SCORES, "--score-2-column", "second", "--shape", "bins"), 2, "two scores"),
        ((*ask, *SCORES, "--numbers-2", "0:1:10"), 2, "--numbers-2 numbers second"),
        ((*ask, *SCORES, "--score-2-column", "score"), 2, "different one"),
        ((*ask, *SCORES, "--epsilon", "0"), 2, "ε"),
        ((*ask, *FILES, "--model", "m_none"), 1, "no model"),
        ((*ask, *FILES, "--score-column", "none"), 2, "none"),
        ((*ask, "--scores", "nan.parquet", *SCORES[2:]), 2, "finite"),
        ((*ask, "--scores", "twice.parquet", *SCORES[2:]), 2, "click_id"),
        ((*ask, "--scores", "nothing.parquet", *SCORES[2:]), 2, "nothing.parquet"),
        ((*ask, *SCORES, "--shape", "round", "--epsilon", "0.1"), 2, "shape"),
        ((*ask, *SCORES, "--option", "levels", "--epsilon", "0.1"), 2, "NAME=VALUE"),
        ((*ask, *SCORES, "--numbers", "1:0:4", "--epsilon", "0.1"), 2, ""),
        (("ask-calibration", "--url", "ftp://x", "--batch", batch, "--epsilon", "1", *SCORES), 2, "http"),
    ]
    for arguments, code, says in bad:
        assert says in shell.refused(*arguments, code=code), arguments
    bare = Shell(shell.folder / "bare")
    bare.folder.mkdir()
    bare.env |= {"FEATURES_PARTY_LABELS_API_KEY": shell.env["FEATURES_PARTY_LABELS_API_KEY"]}
    (bare.folder / "scores.parquet").write_bytes((shell.folder / "scores.parquet").read_bytes())
    assert "pin-key" in bare.refused(*ask, *SCORES, "--epsilon", "0.1", code=2)
    assert party.spent(batch) == party.spent(unasked) == "0"
    assert "no answers yet" in shell.run("answers", "list").stdout


def test_who_waited_in_vain_goes_on_with_the_same_command(shell: Shell, tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "labels", worker=False) as party:
        shell.env["FEATURES_PARTY_LABELS_API_KEY"] = party.services.apikeys.create("features", "features-party")[1]
        shell.run("pin-key", party.services.home.public_key)
        batch = allowed(party, "shop", "0.5")
        with serving(party.client().app) as url:
            ask = ("ask-calibration", "--url", url, "--batch", batch, "--epsilon", "0.5", *SCORES)
            told = shell.refused(*ask, "--wait", "0.1", code=1)
            assert "its state is charged. It is charged; the same command again goes on with it at no cost." in told
            assert party.spent(batch) == "0.5"
            charged = party.services.database.read("t", lambda c: party.services.work.of_batch(c, batch))
            assert party.services.pipeline.run(charged[0].id)
            done = shell.json(*ask)
            other = ("ask-calibration", "--url", url, "--batch", allowed(party, "failing"), *ask[5:])
            lost = shell.json(*other, "--wait", "0")["answer"]
            failed = sa.update(work).where(work.c.id == lost).values(state="failed")
            party.services.database.write("t", lambda c: c.execute(failed) and None)
            told = shell.refused(*other, code=1)
            assert "is failed and will not be published" in told
            assert "A new one, with --additional-release or other terms, is charged too." in told
    assert (done["answer"], done["state"], done["fresh"]) == (charged[0].id, "published", True)
    assert done["epsilon_spent"] == "0.5"


# --- REST and Python ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Api, str, str]]:
    """A service, a model of its registry, and a feature table."""
    folder = tmp_path_factory.mktemp("api")
    with running(folder, SENDER) as found:
        found.accept(message_files(SENDER, folder / "sent"))
        table = found.table()
        yield found, found.trained(table), table


def test_the_service_asks_for_its_own_models(
    api: tuple[Api, str, str], advertiser: tuple[LabelsParty, str, str]
) -> None:
    (service, model, table), (party, url, key) = api, advertiser
    service.services.pinned.pin(party.services.home.public_key)
    batch = party.sealed_batch(LABELS, "rest", label="revenue of rest")
    body = {"feature_table": table, "url": url, "batch": batch, "epsilon": "0.5", "api_key": key}
    path = f"/v1/models/{model}/ask-calibration"
    denied = service.trainer.post(path, json=body)
    is_problem(denied, 404, "not-found")
    assert f"allow-calibrations {batch}" in denied.json()["detail"]
    party.client().put(f"/v1/batches/{batch}/calibration-allowance", json={"epsilon": "0.5"})
    first = service.trainer.post(path, json=body)
    assert first.status_code == 202, first.text
    assert first.json()["scores"] == len(WORLD.ids)
    python = service.python()
    again = python.ask_calibration(model, table, url, batch, "0.5", key, shape="auto")
    assert again["answer"] == first.json()["answer"]
    kept = python.pull_answer(url, again["answer"], key, wait=30)
    assert kept["answer"]["parameters"]["scores"] == "float32"
    assert (kept["answer"]["batch"], party.spent(batch)) == (batch, "0.5")
    other, answer_body = service.trained(table, model="trees"), {"answer": again["answer"]}
    is_problem(service.trainer.post(f"/v1/models/{other}/calibrations", json=answer_body), 409, "conflict")
    service.trainer.delete(f"/v1/models/{other}")
    listed = service.trainer.get("/v1/answers").json()
    assert [(a["answer"], a["population_name"]) for a in listed] == [(again["answer"], "rest")]
    for change, status, code in (
        ({"epsilon": "0"}, 422, "invalid-epsilon"),
        ({"epsilon": 0}, 422, "invalid-epsilon"),
        ({"epsilon": "0" * 81}, 422, "invalid-request"),
        ({"scores_2": "float32"}, 422, "invalid-input"),
        ({"epsilon": "1"}, 409, "conflict"),
        ({"epsilon": "1", "additional_release": True}, 409, "refused"),
        ({"shape": "grid"}, 422, "invalid-input"),
        ({"shape": "round"}, 422, "invalid-input"),
        ({"feature_table": "ft_none"}, 404, "not-found"),
        ({"batch": ".."}, 422, "invalid-input"),
        ({"url": "http://127.0.0.1:8001", "api_key": None}, 422, "invalid-input"),
        ({"more": 1}, 422, "invalid-request"),
    ):
        answer = service.trainer.post(path, json=body | change)
        assert (answer.status_code, answer.json()["code"]) == (status, code), (change, answer.text)
    is_problem(service.auditor.post(path, json=body), 404, "not-found")
    is_problem(service.trainer.post("/v1/models/m_none/ask-calibration", json=body), 404, "not-found")
    is_problem(
        service.trainer.post("/v1/answers", json={"url": url, "answer": "a", "wait": 31}), 422, "invalid-request"
    )
    refused = service.trainer.post(path, json=body | {"scores_2": "0:1:10"}).json()["detail"]
    assert "`scores_2`" in refused
    assert "--" not in refused  # members are named here, and options to who types a command
    assert party.spent(batch) == "0.5"


def test_models_tell_the_calibration_behind_them(api: tuple[Api, str, str]) -> None:
    service, model, _ = api
    envelope = signed(SENDER.key, np.array([0.5, 2.0, 8.5]), [20, 60], id="ans_shown")
    made = service.trainer.post(f"/v1/models/{model}/calibrations", json=json.loads(envelope)).json()
    assert made["id"] == made["model"] != model
    listed = {m["id"]: m["calibration"] for m in service.trainer.get("/v1/models").json()}
    assert listed == {model: None, made["id"]: "ans_shown"}
    shell = Shell(service.services.home.path.parent)
    rows = {m["id"]: m["calibration"] for m in shell.json("models", "list")}
    assert rows == listed
    (line,) = [text for text in shell.run("models", "list").stdout.splitlines() if made["id"] in text]
    assert "ans_shown" in line
    table = service.table()
    body = {"feature_table": table, "url": "http://127.0.0.1:9", "batch": "b", "epsilon": "1", "api_key": "k"}
    refused = service.trainer.post(f"/v1/models/{made['id']}/ask-calibration", json=body)
    is_problem(refused, 422, "invalid-input")
    assert "calibrated already" in refused.json()["detail"]


# --- what is sent, and what comes back ---------------------------------------------------------------------

TERMS = Calibration(epsilon="0.5")


def scored(n: int = 3, shift: float = 0.0) -> ScoreTable:
    return ScoreTable(pa.array([f"c{i}" for i in range(n)]), (np.arange(n) / 7 + shift,))


def calls_of(
    *answers: httpx.Response, batch: str = "bat_1", terms: Calibration = TERMS, sent: ScoreTable | None = None
) -> list[httpx.Request]:
    """The requests of one call to a labels party that gives these answers, its last one for ever."""
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        request.read()
        seen.append(request)
        given = answers[min(len(seen), len(answers)) - 1]
        return httpx.Response(given.status_code, content=given.content)

    told: list[int] = []
    with LabelsService("http://labels", "k", transport=httpx.MockTransport(handle), sleep=lambda _: None) as service:
        body = (sent or scored()).body()
        try:
            service.ask_calibration(batch, body, query_of(terms, 1), told.append)
            assert told[-1] == len(body)
        except errors.LabelDPError as error:
            seen[-1].extensions["error"] = error
    return seen


GOOD = httpx.Response(202, json={"id": "ans_1", "state": "charged"})
IN_FLIGHT = httpx.Response(409, json={"code": "in-flight", "detail": "Still being answered."})


def test_the_key_stands_for_all_that_is_sent() -> None:
    def key(**changes: Any) -> str:
        (request,) = calls_of(GOOD, **changes)
        return request.headers["idempotency-key"]

    same = {key() for _ in range(3)}
    others = [
        key(sent=scored(shift=1e-9)),
        key(sent=scored(4)),
        key(batch="bat_2"),
        key(terms=Calibration(epsilon="0.500000001")),
        key(terms=Calibration(epsilon="0.5", scores="0:1:10")),
        key(terms=Calibration(epsilon="0.5", additional_release=True)),
        key(terms=Calibration(epsilon="0.5", option=["levels=3"])),
    ]
    assert len(same) == 1
    assert len({*same, *others}) == 1 + len(others)


def test_trouble_is_tried_again_under_one_key_with_the_whole_body() -> None:
    calls = calls_of(httpx.Response(503), IN_FLIGHT, GOOD)
    assert len(calls) == 3
    assert len({call.headers["idempotency-key"] for call in calls}) == 1
    assert {call.content for call in calls} == {scored().body()}
    assert {call.headers["content-length"] for call in calls} == {str(len(scored().body()))}
    stuck = calls_of(IN_FLIGHT)
    assert len(stuck) == RETRIES + 1
    assert isinstance(stuck[-1].extensions["error"], errors.IdempotencyInFlight)


@pytest.mark.parametrize("said", [{}, {"id": 1, "state": "charged"}, {"id": "../x", "state": "s"}, {"id": "ans_1"}])
def test_an_answer_that_names_no_calibration_is_refused(said: dict[str, Any]) -> None:
    (call,) = calls_of(httpx.Response(202, json=said))
    assert isinstance(call.extensions["error"], errors.Unavailable)


def test_many_scores_go_in_batches_that_a_labels_party_takes() -> None:
    body = scored(200_000).body()
    with pa.ipc.open_stream(body) as stream:
        rows = [batch.num_rows for batch in stream]
    assert sum(rows) == 200_000
    assert max(rows) <= 1 << 16


def test_an_answer_to_another_question_is_not_taken(tmp_path: Path) -> None:
    with running(tmp_path, SENDER) as api:
        intake = api.services.answers
        right, epsilon = signed(SENDER.key, np.array([1.0]), [], batch="bat_1"), Epsilon.parse(str(TERMS.epsilon))
        require_asked(intake.verify(right), "calibration", "bat_1", epsilon)
        for changes in ({"batch": "bat_2"}, {"kind": "median", "parameters": {"method": "ranks"},
                        "result": {"found": True, "median": "5"}, "batch": "bat_1"}):  # fmt: skip
            found = intake.verify(signed(SENDER.key, np.array([1.0]), [], **changes))
            with pytest.raises(errors.MalformedAnswer, match="asked for"):
                require_asked(found, "calibration", "bat_1", epsilon)
        with pytest.raises(errors.MalformedAnswer, match=r"ε 0\.5"):
            require_asked(intake.verify(right), "calibration", "bat_1", Epsilon.parse("0.4"))
