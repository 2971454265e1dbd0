"""`GET /v1/answers`, `labels-party answers`: what a receiver learns, by day, in pages; of others' answers nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from labels_party.client import AsyncLabelsPartyClient, LabelsPartyClient
from tests.support.calibrations import charged, published, records, score_table
from tests.support.labels import LabelsParty, label_table
from tests.support.labels_cli import Run, arguments, refused
from tests.support.predicting import ask, made, tables, with_features
from tests.support.serving import serving

pytestmark = pytest.mark.extended

TABLE = label_table(60)
Given = dict[str, list[str]]


def ids(client: TestClient, **params: str | int) -> list[str]:
    return [a["id"] for a in client.get("/v1/answers", params=params).json()]


def given(party: LabelsParty) -> Given:
    """Answers for both publishers, one that `other` asked for itself, and one of a population of `other` alone."""
    owner = party.client()
    labels, features = tables(40)
    both = with_features(
        party, labels, features, population="shop", label="label", audiences=["features-party", "other"]
    )
    predictor = made(party, both)
    found: Given = {"both": [], "own": [], "other": []}
    for x in (1, 7):  # a query belongs to who asked, and these two asked the same
        (answer,) = {ask(party, predictor, {"x": x}, audience).answer for audience in ("features-party", "other")}
        found["both"].append(answer)
    median = {"epsilon": "1", "additional_release": True}
    asked = owner.post(f"/v1/batches/{both}/medians", json=median)
    found["both"].append(published(owner, asked.json()["id"])["id"])
    assert owner.put(f"/v1/batches/{both}/calibration-allowance", json={"epsilon": "1"}).status_code == 200
    params = {"epsilon": "1", "additional_release": True}
    own = party.client("features", "other").post(
        f"/v1/batches/{both}/calibrations", params=params, json=records(score_table(labels))
    )
    found["own"].append(published(owner, own.json()["id"])["id"])
    alone = party.sealed_batch(TABLE, "private", label="visits", audiences=["other"])
    private = owner.post(f"/v1/batches/{alone}/medians", json={"epsilon": "0.5"}).json()["id"]
    found["other"].append(published(owner, private)["id"])
    return found


def test_a_receiver_sees_the_published_answers_that_are_meant_for_it(party_on: LabelsParty) -> None:
    party, answers = party_on, given(party_on)
    ours, other = party.client("features"), party.client("features", "other")
    assert len(answers["both"]) == 3
    assert sorted(ids(ours)) == sorted(answers["both"])
    assert sorted(ids(other)) == sorted(ids(party.client())) == sorted(a for some in answers.values() for a in some)
    assert ids(party.client("features", "nobody")) == []
    assert sorted(ids(ours, population="shop")) == sorted(answers["both"])
    assert ids(ours, population="private") == ids(ours, population="no such thing") == []
    assert ids(other, population="private") == answers["other"]
    assert ids(ours, since="2999-01-01") == []
    for entry in ours.get("/v1/answers").json():
        stated = ours.get(f"/v1/answers/{entry['id']}").json()
        for name in ("kind", "batch", "population", "audiences", "published", "sha256"):
            assert entry[name] == stated[name]
        assert len(entry["published"]) == 10  # the day, not the second of the draw
        assert (entry["epsilon"], entry["delta"]) == (stated["epsilon"]["total"], stated["epsilon"]["delta"])


def test_pages_skip_what_is_for_others_and_take_no_cursor_of_theirs(party_on: LabelsParty) -> None:
    party, answers = party_on, given(party_on)
    ours, found, following = party.client("features"), [], "?limit=1"
    while following:
        page = ours.get(f"/v1/answers{following}")
        found += [a["id"] for a in page.json()]
        assert len(page.json()) == 1
        following = page.links.get("next", {}).get("url", "")
    assert sorted(found) == sorted(answers["both"])
    nothing = ours.get("/v1/answers", params={"cursor": "ans_nothing"})
    assert (nothing.status_code, nothing.json()["code"]) == (404, "not-found")
    for hidden in answers["own"] + answers["other"]:
        said = ours.get("/v1/answers", params={"cursor": hidden})
        assert said.status_code == 404
        assert said.json()["detail"] == nothing.json()["detail"].replace("ans_nothing", hidden)
    other = party.client("features", "other")
    everything = ids(other)
    assert ids(other, cursor=answers["own"][0]) == everything[everything.index(answers["own"][0]) + 1 :]


@pytest.mark.parametrize(
    "params", [{"since": "yesterday"}, {"limit": 0}, {"limit": 5000}, {"cursor": "x" * 201}, {"kind": "median"}]
)
def test_bad_questions(party: LabelsParty, params: dict[str, str | int]) -> None:
    assert party.client("features").get("/v1/answers", params=params).status_code in (400, 422)
    assert party.client("ingest").get("/v1/answers").status_code == 404
    assert party.client("ingest").get("/v1/answers").status_code == 404


def test_what_is_not_published_shows_to_its_owner_on_the_command_line_only(run: Run, home: Path) -> None:
    assert "no labels party" in run("answers").err
    with LabelsParty(home, worker=False) as party:
        batch = party.sealed_batch(TABLE)
        answer = charged(party, batch, score_table(TABLE))
        for role in ("features", "owner"):
            assert party.client(role).get("/v1/answers").json() == []
            assert party.client(role).get("/v1/answers", params={"cursor": answer}).status_code == 404
        (row,) = run("answers", "--json").json
        assert (row["id"], row["state"], row["published"], row["sha256"]) == (answer, "charged", None, None)
        assert party.services.pipeline.run(answer)
        assert ids(party.client("features")) == [answer]
    told = run("answers", "--population", "shop", "--kind", "calibration").out
    assert f"{answer}  calibration  shop" in told
    assert "published" in told
    assert "No answer fits" in run("answers", "--kind", "median").out
    refused(run("answers", "--kind", "medians"), 2, "no kind 'medians'", "median, prediction, rectangle")
    refused(run("answers", "--population", "nowhere"), 1, "no population 'nowhere'")


def test_an_id_given_to_the_command_of_another_kind_is_told_what_it_names(run: Run, home: Path, labels: Path) -> None:
    assert run(*arguments(labels)).code == 0
    with LabelsParty(home, worker=False) as party:
        batch = with_features(party, *tables(40), population="other", label="label")
        predictor = made(party, batch)
        answer = ask(party, predictor).answer
        waiting = charged(party, party.sealed_batch(TABLE, "third", label="third"), score_table(TABLE))
        release = party.services.database.read("t", lambda c: party.services.audit.events(c, kind="release-published"))
        name = str(release[0].subject.work)
    for command in ("statement", "message"):
        refused(run(command, answer, "--out", "x"), 1, f"no release '{answer}'", f"labels-party answer {answer} --out")
    refused(run("answer", name, "--out", "x"), 1, f"no answer '{name}'", f"labels-party message {name}", "statement")
    refused(run("message", waiting, "--out", "x"), 1, f"no release '{waiting}'")
    assert [a["state"] for a in run("answers", "--json").json if a["id"] == waiting] == ["charged"]  # nothing is drawn
    refused(run("answer", predictor, "--out", "x"), 1, f"labels-party predictor show {predictor}")
    refused(run("statement", "rel_nothing", "--out", "x"), 1, "no release 'rel_nothing'.\n")
    assert not (home.parent / "x").exists()


def test_both_python_clients_read_all_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("label_dp.client.listings.PAGE", 2)
    with LabelsParty(tmp_path / "home", worker=False) as party:
        batch = with_features(party, *tables(40))
        predictor = made(party, batch)
        answers = sorted(ask(party, predictor, {"x": x}, "features-party").answer for x in (1, 4, 8))
        key = party.services.apikeys.create("features", "features-party")[1]
        with serving(party.client().app) as url:
            with LabelsPartyClient(url, key) as client:
                assert sorted(a["id"] for a in client.answers()) == answers
                assert client.answers(since="2999-01-01") == client.answers(population="none") == []

            async def talk() -> list[str]:
                async with AsyncLabelsPartyClient(url, key) as client:
                    return [a["id"] for a in await client.answers()]

            assert sorted(asyncio.run(talk())) == answers
