"""Answers by command line, REST and Python: pulled, uploaded, listed, shown, verified, and a kept map applied."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.calibrations import charged, score_table, signed
from tests.support.features_api import Api, message_files, running
from tests.support.features_cli import Shell
from tests.support.labels import LabelsParty, label_table
from tests.support.labels_api import is_problem
from tests.support.messages import Sender
from tests.support.predicting import QUERY, ask, made, tables, with_features
from tests.support.serving import serving

pytestmark = pytest.mark.extended

VALUES, CUTS = np.array([0.5, 2.0, 8.5]), [20, 60]


@pytest.fixture(scope="module")
def advertiser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LabelsParty, str, str]]:
    """A labels party with a published calibration, its URL, and our key there."""
    with LabelsParty(tmp_path_factory.mktemp("labels") / "home", worker=False) as party:
        labels = label_table(120)
        answer = charged(party, party.sealed_batch(labels), score_table(labels))
        assert party.services.pipeline.run(answer)
        key = party.services.apikeys.create("features", "features-party")[1]
        with serving(party.client().app) as url:
            yield party, url, key


def calibration_of(party: LabelsParty) -> str:
    found = party.services.database.read("t", lambda c: [e.subject.work for e in party.services.audit.scan(c)])
    return next(str(f) for f in found if str(f).startswith("ans_"))


@pytest.fixture
def shell(tmp_path: Path, advertiser: tuple[LabelsParty, str, str]) -> Shell:
    found = Shell(tmp_path)
    found.env["FEATURES_PARTY_LABELS_API_KEY"] = advertiser[2]
    found.run("pin-key", advertiser[0].services.home.public_key)
    scores = pa.table({"click_id": ["a", "b", "c"], "score": [0.0, 2.5, 5.0]})
    pq.write_table(scores, tmp_path / "scores.parquet")
    return found


SCORES = ("--scores", "scores.parquet", "--id-column", "click_id", "--score-column", "score")


def test_an_answer_is_pulled_kept_shown_and_applied(shell: Shell, advertiser: tuple[LabelsParty, str, str]) -> None:
    party, url, _ = advertiser
    answer = calibration_of(party)
    assert "no answers yet" in shell.run("answers", "list").stdout
    shell.refused("calibrate", "--map", answer, *SCORES, "--out", "no.parquet", code=1)
    pull = ("pull", "--url", url, "--answer", answer)
    told = shell.run(*pull, "--out", "map.json").stdout.splitlines()
    assert told[0] == f"calibration {answer}: ε 1"
    assert told[1].startswith("receipts: the labels party has no key of ours")
    again = shell.json(*pull, "--wait")
    assert (again["fresh"], again["answer"], again["kind"]) == (False, answer, "calibration")
    envelope = (shell.folder / "map.json").read_bytes()
    assert envelope == party.services.work.envelope(answer)
    (row,) = shell.json("answers", "list")
    assert (row["answer"], row["digest"], row["epsilon"]["total"]) == (answer, again["document_digest"], "1")
    listed = shell.run("answers", "list").stdout
    assert answer in listed
    assert row["population_name"] == "shop"
    assert row["population_name"] in listed.split()
    assert row["population"] not in listed
    assert "all charged" in shell.run("answers", "show", answer, "--out", "copy.json").stdout
    assert (shell.folder / "copy.json").read_bytes() == envelope
    assert shell.json("answers", "show", row["digest"])["result"]["map"]["kind"] == "step"
    assert shell.json("verify", "map.json")["verified"]
    assert "Signed answer" in shell.run("verify", "map.json").stdout
    for given, out in ((answer, "id.parquet"), (row["digest"], "digest.parquet"), ("map.json", "file.parquet")):
        assert shell.json("calibrate", "--map", given, *SCORES, "--out", out)["fresh"] is False
    found = [pq.read_table(shell.folder / f"{n}.parquet") for n in ("id", "digest", "file")]
    assert found[0] == found[1] == found[2]
    assert shell.json("budget")[0]["answers"] == 1
    assert len(shell.json("audit", "show", "--kind", "answer-accepted")) == 1
    shell.refused(*pull, "--out", "map.json", code=2)
    shell.refused(*pull, "--release", "rel_1", code=2)
    shell.refused("pull", "--url", url, code=2)
    shell.refused("pull", "--url", url, "--release", "rel_1", code=2)  # --out is missing
    shell.refused(*pull, "--population", "shop", code=2)
    shell.refused("pull", "--url", url, "--answer", "ans_none", code=1)
    shell.refused("answers", "show", "ans_none", code=1)


def test_calibrate_fetches_what_its_url_has(shell: Shell, advertiser: tuple[LabelsParty, str, str]) -> None:
    party, url, _ = advertiser
    base = ("calibrate", "--map", calibration_of(party), "--url", url, *SCORES)
    assert shell.json(*base, "--out", "out.csv")["answer"] == calibration_of(party)
    assert len(shell.json("answers", "list")) == 1
    shell.refused("calibrate", "--map", "ans_none", "--url", url, *SCORES, "--out", "no.csv", code=1)


def test_predictions_come_as_a_file_with_one_answer_a_line(
    shell: Shell, advertiser: tuple[LabelsParty, str, str]
) -> None:
    party, _, _ = advertiser
    labels, features = tables()
    predictor = made(party, with_features(party, labels, features, population="asked", label="asked"))
    answers = [ask(party, predictor, QUERY | {"x": x}) for x in (1.0, 9.0)]
    lines = b"".join(a.envelope + b"\n" for a in answers)
    for name in ("said.ndjson", "said.json"):
        (shell.folder / name).write_bytes(lines)
        shown = shell.run("verify", name).stdout
        assert shown.count("Query") == 2
        assert "{" not in shown
    told = shell.run("answers", "accept", "said.ndjson").stdout.splitlines()
    assert [line.split(":")[0] for line in told] == [f"prediction {a.answer}" for a in answers]
    assert [a["fresh"] for a in shell.json("answers", "accept", "said.ndjson")] == [False, False]
    assert shell.json("budget")[0]["epsilon_per_example"] == "1"
    # all are verified before the first is accounted for
    fresh = ask(party, predictor, QUERY | {"x": 5.0}).envelope
    (shell.folder / "mixed.ndjson").write_bytes(fresh + b"\n" + lines[:100])
    shell.refused("answers", "accept", "mixed.ndjson", code=1)
    assert len(shell.json("answers", "list")) == 2
    (shell.folder / "empty.json").write_bytes(b"\n")
    shell.refused("answers", "accept", "empty.json", code=2)
    shell.refused("answers", "accept", "nothing.json", code=2)
    shell.refused("calibrate", "--map", answers[0].answer, *SCORES, "--out", "no.csv", code=1)  # of another kind


# --- REST and Python ---------------------------------------------------------------------------------------

SENDER = Sender()
GOOD = signed(SENDER.key, VALUES, CUTS)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("api"), SENDER) as found:
        yield found


def accepted(api: Api) -> list[Any]:
    audit = api.services.audit
    return api.services.database.read("t", lambda c: audit.events(c, kind="answer-accepted"))


def test_an_uploaded_answer_is_kept_once(api: Api, tmp_path: Path) -> None:
    first = api.trainer.post("/v1/answers", json=json.loads(GOOD), headers={"Idempotency-Key": "one"})
    assert first.status_code == 201, first.text
    assert first.json()["answer"]["document_digest"] == api.services.answers.open("ans_1").digest
    again = api.trainer.post("/v1/answers", json=json.loads(GOOD), headers={"Idempotency-Key": "one"})
    assert (again.status_code, again.json()) == (201, first.json())
    later = api.trainer.post("/v1/answers", json=json.loads(GOOD))
    assert (later.status_code, later.json()["already_accepted"]) == (200, True)
    assert len(accepted(api)) == 1
    assert api.auditor.get("/v1/answers/ans_1").json() == later.json()
    assert api.auditor.get("/v1/answers/ans_1/document").content == GOOD
    other = signed(SENDER.key, VALUES, CUTS, id="ans_2", epsilon_spent="1")
    python = api.python()
    assert python.upload_answer(other)["already_accepted"] is False
    assert {row["answer"] for row in python.answers()} == {"ans_1", "ans_2"}
    assert python.answer("ans_2")["answer"]["kind"] == "calibration"
    assert python.answer_document("ans_2") == other
    page = api.trainer.get("/v1/answers?limit=1")
    assert len(page.json()) == 1
    assert 'rel="next"' in page.headers["link"]
    is_problem(api.trainer.get("/v1/answers/ans_9"), 404, "not-found")
    conflict = api.trainer.post("/v1/answers", json=json.loads(signed(SENDER.key, VALUES + 1, CUTS)))
    is_problem(conflict, 422, "replay-conflict")
    is_problem(
        api.trainer.post("/v1/answers", json=json.loads(signed(Sender().key, VALUES, CUTS))), 422, "signature-invalid"
    )
    for body in ({}, {"payload": 1}, {"url": "http://127.0.0.1:1"}, {"url": "x", "answer": "ans_1", "more": 1}):
        assert api.trainer.post("/v1/answers", json=body).status_code == 422, body
    assert len(accepted(api)) == 2
    api.accept(message_files(SENDER, tmp_path / "sent"))
    model = api.trained()
    from_kept = api.trainer.post(f"/v1/models/{model}/calibrations", json={"answer": "ans_1"})
    assert from_kept.status_code == 201, from_kept.text
    assert api.trainer.post(f"/v1/models/{model}/calibrations", json=json.loads(GOOD)).json() == from_kept.json()
    assert python.calibrate(model, "ans_1") == from_kept.json()
    is_problem(api.trainer.post(f"/v1/models/{model}/calibrations", json={"answer": "ans_9"}), 404, "not-found")
    assert len(accepted(api)) == 2


def test_the_service_pulls_an_answer_by_its_id(tmp_path: Path, advertiser: tuple[LabelsParty, str, str]) -> None:
    party, url, key = advertiser
    answer = calibration_of(party)
    with running(tmp_path, SENDER, labels_urls=(url,)) as api:
        api.services.pinned.pin(party.services.home.public_key)
        body = {"url": url, "answer": answer, "api_key": key}
        found = api.trainer.post("/v1/answers", json=body)
        assert (found.status_code, found.json()["answer"]["answer"]) == (201, answer), found.text
        assert api.trainer.post("/v1/answers", json=body).status_code == 200
        assert api.python().pull_answer(url, answer, key)["already_accepted"] is True
        assert len(accepted(api)) == 1
        is_problem(api.trainer.post("/v1/answers", json=body | {"answer": "ans_none"}), 404, "not-found")
        is_problem(api.trainer.post("/v1/answers", json=body | {"answer": ".."}), 422, "invalid-input")
        is_problem(api.trainer.post("/v1/answers", json=body | {"url": "http://127.0.0.1:9"}), 404, "not-found")
