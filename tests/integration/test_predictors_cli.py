"""Predictors on the command line and through the Python clients: made, asked, refused, retired."""

from __future__ import annotations

import asyncio
import base64
import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from label_dp.documents.registry import trusted_answer
from label_dp.documents.signing import VerifyingKey
from labels_party.client import AsyncLabelsPartyClient, LabelsPartyClient, RemoteProblem
from labels_party.companions.kinds.prediction.queries import Outlook, Queries
from tests.support.labels import LabelsParty
from tests.support.labels_cli import Run, refused
from tests.support.predicting import FEATURES, tables
from tests.support.serving import serving

pytestmark = pytest.mark.extended

MAKE = ["predictor", "create", "--epsilon", "0.25", "--epsilon-cap", "0.5", "--additional-release", "--json"]
SCHEMA = ["--feature", "x=0:10", "--feature", "sector=a,b,c"]


@pytest.fixture
def batch(run: Run, home: Path) -> str:
    labels, features = tables(90)
    for name, table in (("labels", labels), ("features", features)):
        pq.write_table(table, home.parent / f"{name}.parquet")
    common = ["--id-column", "example_id", "--label-column", "label", "--domain", "0:10", "--population", "shop"]
    found = run(
        *("privatize", "--labels", "labels.parquet", *common, "--epsilon", "1", "--budget", "3"),
        *("--mechanism", "rr-on-bins", "--out", "m.parquet", "--json"),
    )
    assert found.code == 0, found.err
    return str(json.loads(found.out)["batch"])


def test_made_asked_refused_and_retired(run: Run, home: Path, batch: str) -> None:
    made = run(*MAKE, "--batch", batch, "--method", "average", *SCHEMA, "--features", "features.parquet")
    assert made.code == 0, made.err
    predictor = json.loads(made.out)
    assert (predictor["state"], predictor["queries_left"]) == ("ready", 2)
    name = predictor["id"]
    first = run("predict", name, "--query", "x=3", "--query", "sector=b", "--json")
    (answer,) = json.loads(first.out)
    assert 0 <= float(answer["value"]) <= 10
    assert answer["queries_left"] == 1

    with (home.parent / "asked.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerows([["id", "x", "sector"], ["1", "3.0", "b"], ["2", "", "a"], ["3", "9", "c"]])
    asked = ("predict", name, "--queries", "asked.csv", "--out", "answers.ndjson")
    refused(run(*asked), 1, "2 new queries", "has 1 left at ε = 0.25", "Nothing was charged", "--limit 2")
    assert json.loads(run("predictor", "show", name, "--json").out)["queries_left"] == 1
    assert not (home.parent / "answers.ndjson").exists()
    several = run(*asked, "--limit", "2")  # the first was answered before
    assert several.code == 0
    assert several.out.count("left") == 2
    envelopes = (home.parent / "answers.ndjson").read_bytes().splitlines()
    key = VerifyingKey.load(home / "keys" / "signing.pub")
    answers = [trusted_answer(envelope, key, "features-party")[0] for envelope in envelopes]
    assert [a.parameters["query"]["sector"] for a in answers] == ["b", "a"]
    assert answers[0].id == answer["answer"]
    inspected = run("inspect", "answers.ndjson", "--json")
    assert [a["answer"] for a in json.loads(inspected.out)] == [a.id for a in answers]
    assert all(a.id in run("inspect", "answers.ndjson").out for a in answers)

    assert f"{name}" in run("predictor", "list").out
    shown = run("predictor", "show", name).out
    assert "0 new queries are left" in shown
    assert "x=0:10  sector=a,b,c" in shown  # what a query is asked with
    assert "learner" in shown
    once_more = run("answer", answer["answer"], "--out", "prediction.json")
    assert once_more.code == 0, once_more.err
    assert answer["value"] in once_more.out
    assert (home.parent / "prediction.json").read_bytes() == envelopes[0]
    assert "retired" in run("predictor", "retire", name).out
    assert json.loads(run("predictor", "show", name, "--json").out)["state"] == "retired"
    assert "what it learned is deleted" in run("predict", name, "--query", "x=9").err  # its labels are not gone
    assert json.loads(run("budget", "--json").out)[0]["batches"][0]["epsilon_spent"] == "1.5"
    shown = " ".join(run("audit", "show").out.split())  # lines are as wide as the terminal
    assert f"predictor {name} of batch {batch}" in shown
    assert "prediction ans_" in shown
    assert run("audit", "verify").code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["predict", "prd_none", "--query", "x=1"], 1, "no predictor"),
        (["predict", "prd_none"], 2, "--query"),
        (["predict", "prd_none", "--query", "x=1", "--limit", "1"], 2, "--limit goes with --queries"),
        (["predict", "prd_none", "--query", "x"], 1, "no predictor"),
        ([*MAKE, "--batch", "BATCH", "--method", "average", "--feature", "x"], 2, "NAME=LOW:HIGH"),
        (
            [*MAKE, "--epsilon=2", "--batch", "BATCH", "--method=average", *SCHEMA, "--features=features.parquet"],
            2,
            "ε 2 of a cap of ε 0.5",
        ),
        ([*MAKE, "--batch", "BATCH", "--method", "average", *SCHEMA], 1, "no features"),
        (
            [*MAKE, "--batch=BATCH", "--method=average", "--feature", "x=5", "--features=features.parquet"],
            2,
            "--feature x=LO:HI",
        ),
        (
            [*MAKE, "--batch", "BATCH", "--method", "oracle", *SCHEMA, "--features", "features.parquet"],
            2,
            "--method must be",
        ),
        ([*MAKE, "--batch", "BATCH", "--method", "average", *SCHEMA, "--features", "none.csv"], 2, "none.csv"),
        (
            [*MAKE[:-2], "--batch", "BATCH", "--method", "average", *SCHEMA, "--features", "features.parquet"],
            1,
            "carries",
        ),
    ],
)
def test_refusals_are_one_line(run: Run, batch: str, arguments: list[str], code: int, says: str) -> None:
    found = run(*[a.replace("BATCH", batch) for a in arguments])
    assert (found.code, found.out) == (code, "")
    assert says in found.err
    assert len(found.err.strip().splitlines()) == 1


def test_training_that_is_refused_says_so(run: Run, batch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What features cannot be certified for is found while training; it depends on features alone."""
    inverse = np.linalg.inv
    monkeypatch.setattr(np.linalg, "inv", lambda a: inverse(a) * 1.001)
    found = run(*MAKE, "--batch", batch, "--method", "stable-ridge", *SCHEMA, "--features", "features.parquet")
    assert (found.code, found.out) == (1, "")
    assert "regularisation" in found.err
    (listed,) = json.loads(run("predictor", "list", "--json").out)
    assert (listed["state"], listed["queries_left"]) == ("failed", 0)
    assert run("predict", listed["id"], "--query", "x=1").code == 1


def test_a_bad_row_is_refused_before_the_first_is_charged(run: Run, home: Path, batch: str) -> None:
    made = run(*MAKE, "--batch", batch, "--method", "average", *SCHEMA, "--features", "features.parquet")
    name = json.loads(made.out)["id"]
    (home.parent / "asked.csv").write_text("x,sector\n1,a\nten,b\n")
    assert run("predict", name, "--queries", "asked.csv").code == 2
    assert run("predict", name, "--queries", "features.parquet", "--out", "features.parquet").code == 2
    assert json.loads(run("predictor", "show", name, "--json").out)["queries_answered"] == 0


def table_of(home: Path, *rows: object) -> None:
    (home.parent / "asked.csv").write_text("x,sector\n" + "".join(f"{x},a\n" for x in rows))


def test_a_table_is_answered_as_a_whole_or_not_at_all(run: Run, home: Path, batch: str) -> None:
    made = run(
        *MAKE, "--batch", batch, "--method", "average", *SCHEMA, "--features", "features.parquet", "--epsilon-cap", "1"
    )
    name = json.loads(made.out)["id"]

    def answered() -> int:
        return int(json.loads(run("predictor", "show", name, "--json").out)["queries_answered"])

    table_of(home, *range(10), *range(10))
    refused(run("predict", name, "--queries", "asked.csv"), 1, "10 new queries", "4 left", "the first 4 rows")
    assert answered() == 0
    table_of(home, 1, 1, 1.0, 2, 2, 1)  # two queries, however often they come
    told = run("predict", name, "--queries", "asked.csv", "--json")
    assert len({a["answer"] for a in told.json}) == 2 == answered()
    table_of(home, 3, 2, 1, 4, 2, 5, 1)
    refused(run("predict", name, "--queries", "asked.csv"), 1, "3 new queries", "2 left", "--limit 5")
    assert answered() == 2
    assert run("predict", name, "--queries", "asked.csv", "--limit", "5").code == 0
    assert answered() == 4
    table_of(home, 4, 3, 2, 1)
    assert run("predict", name, "--queries", "asked.csv").code == 0  # nothing of it is new, and nothing is left
    table_of(home, 1, 9)
    refused(run("predict", name, "--queries", "asked.csv"), 1, "and 4 of ε = 0.25 each have")
    assert run("predict", name, "--queries", "asked.csv", "--limit", "1").code == 0


def test_who_asks_meanwhile_is_served_first_and_what_was_answered_is_kept(
    run: Run, home: Path, batch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = run(*MAKE, "--batch", batch, "--method", "average", *SCHEMA, "--features", "features.parquet")
    name = json.loads(made.out)["id"]
    outlook = Queries.outlook

    def and_then_another(queries: Queries, *of: Any) -> Outlook:
        found = outlook(queries, *of)
        queries.predict(name, {"x": 9.5}, "another")
        return found

    monkeypatch.setattr(Queries, "outlook", and_then_another)
    table_of(home, 1, 2)
    found = run("predict", name, "--queries", "asked.csv", "--out", "some.ndjson", "--json")
    assert (found.code, len(found.json)) == (1, 1)
    assert "2 of ε = 0.25 each have" in found.err
    assert "Answered until then: the first 1 of 2; they are kept." in found.err
    (envelope,) = (home.parent / "some.ndjson").read_bytes().splitlines()
    assert found.json[0]["answer"].encode() in base64.b64decode(json.loads(envelope)["payload"])


def test_the_clients(tmp_path: Path) -> None:
    labels, features = tables(90)
    with LabelsParty(tmp_path / "home") as party:
        batch = party.sealed_batch(labels)
        app = party.client().app
        owner, asker = (
            party.services.apikeys.create(*who)[1] for who in (("owner", None), ("features", "features-party"))
        )
        with serving(app) as url, LabelsPartyClient(url, owner) as ours, LabelsPartyClient(url, asker) as theirs:
            renamed = features.rename_columns(["click", "x", "sector"])
            assert ours.put_features(batch, renamed, id_column="click")["rows"] == 90
            made = ours.create_predictor(batch, "soft-majority", "0.5", "1", FEATURES, threshold=5)
            ready = theirs.wait_predictor(made["id"])
            assert (ready["state"], ready["created_by"], len(ready["created"])) == ("ready", None, 10)
            envelope = theirs.predict(made["id"], {"x": np.int64(9), "sector": "c"})
            answer, _ = trusted_answer(envelope, party.services.key.public, "features-party")
            assert answer.kind == "prediction"
            assert answer.result["value"] in ("0", "1")
            missing = theirs.predict(made["id"], {"x": float("nan"), "sector": "c"})  # as frames write it
            assert missing == theirs.predict(made["id"], {"sector": "c"})
            with pytest.raises(RemoteProblem) as refused:
                theirs.predict(made["id"], {"x": 1})
            assert refused.value.problem_code == "budget-exceeded"
            with pytest.raises(RemoteProblem):
                theirs.retire_predictor(made["id"])

            async def awaited() -> bytes:
                async with AsyncLabelsPartyClient(url, asker) as client:
                    assert [p["id"] for p in await client.predictors()] == [made["id"]]
                    assert (await client.predictor(made["id"]))["queries_left"] == 0
                    return await client.predict(made["id"], {"sector": "c", "x": 9.0})

            assert asyncio.run(awaited()) == envelope
            assert ours.retire_predictor(made["id"])["state"] == "retired"


def test_features_over_rest_in_both_formats_and_no_other(tmp_path: Path) -> None:
    labels, _ = tables(20)
    with LabelsParty(tmp_path / "home", worker=False) as party:
        batch, owner = party.sealed_batch(labels), party.client()
        path = f"/v1/batches/{batch}/features"
        text = {"Content-Type": "text/csv"}
        assert owner.put(path, content="example_id,x\nc-00001,1\n", headers=text).json()["features"] == ["x"]
        named = owner.put(f"{path}?id_column=x", content="example,x\n7,c-1\n", headers=text)
        assert named.json() == {"batch": batch, "rows": 1, "features": ["example"]}
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"example_id": ["c-00001"], "x": [1]}), sink)
        parquet = {"Content-Type": "application/vnd.apache.parquet"}
        whole = sink.getvalue().to_pybytes()
        assert owner.put(path, content=whole, headers=parquet).status_code == 200
        same = {"Idempotency-Key": "once"} | parquet
        assert (
            owner.put(path, content=whole, headers=same).json() == owner.put(path, content=whole, headers=same).json()
        )
        for content, headers, status in (
            (whole[:-3], parquet, 422),
            (whole[:40] + b"\xff\xff" + whole[42:], parquet, 422),
            (b"", text, 422),
            (b"example_id,x\n", text, 422),
            (b"example_id,x\n\xff,1\n", text, 422),
            (b"[]", {"Content-Type": "application/json"}, 415),
        ):
            assert owner.put(path, content=content, headers=headers).status_code == status, content
