"""Calibrations of two scores, `shape=grid`: asked for, charged, signed, refused at no charge, and applied by the
receiver; over REST, on both command lines and in both clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from label_dp.companions.kinds.calibration import CalibrationAnswer, open_calibration
from label_dp.documents.answer import read_answer
from label_dp.documents.signing import VerifyingKey
from label_dp.errors import RemoteProblem
from labels_party.client import AsyncLabelsPartyClient, LabelsPartyClient
from tests.support.calibrations import published, records, two_scores
from tests.support.commands import command
from tests.support.features_cli import Shell
from tests.support.labels import LabelsParty, label_table
from tests.support.labels_api import is_problem
from tests.support.upload_formats import table_body

pytestmark = pytest.mark.extended

TABLE = label_table(300)
SCORES = two_scores(TABLE)
GRID = {"epsilon": "1", "shape": "grid"}


@pytest.fixture
def party(tmp_path: Path) -> Iterator[LabelsParty]:
    with LabelsParty(tmp_path / "home") as found:
        yield found


@pytest.fixture
def batch(party: LabelsParty) -> str:
    return party.sealed_batch(TABLE, lifetime="4", audiences=["features-party", "other"])


def post(party: LabelsParty, batch: str, table: pa.Table = SCORES, **query: Any) -> httpx.Response:
    return party.client().post(f"/v1/batches/{batch}/calibrations", params=GRID | query, json=records(table))


def read(party: LabelsParty, asked: httpx.Response) -> CalibrationAnswer:
    assert asked.status_code == 202, asked.text
    client, answer = party.client(), asked.json()["id"]
    published(client, answer)
    envelope = client.get(f"/v1/answers/{answer}/document").content
    return open_calibration(envelope, party.services.key.public, "features-party")


def falls_nowhere(found: CalibrationAnswer, first: Any, second: Any) -> Any:
    """The map on all pairs of rising scores, after a look at it."""
    pairs = np.meshgrid(first, second, indexing="ij")
    applied = found.apply(*(p.reshape(-1) for p in pairs)).reshape(pairs[0].shape)
    assert np.all(np.diff(applied, axis=0) >= 0)
    assert np.all(np.diff(applied, axis=1) >= 0)
    assert applied.min() >= 0
    assert applied.max() <= 10
    return applied


def test_two_scores_are_charged_once_and_get_a_signed_map_of_both(party: LabelsParty, batch: str) -> None:
    found = read(party, post(party, batch, epsilon="4"))
    assert party.spent(batch) == "4"
    parameters, facts = found.answer.parameters, found.answer.mechanism.facts
    assert parameters == {"loss": "squared", "shape": "grid", "options": {}, "scores": "float32", "scores_2": "float32"}
    assert (facts["algorithm"], facts["cells"], found.answer.n) == ("3", "8x8", 300)
    assert found.pieces == 64
    applied = falls_nowhere(found, np.linspace(-2, 7, 40), np.geomspace(0.01, 400, 40))
    assert applied[0, 0] < applied[-1, -1]
    # 300 examples at ε = 4: the truth rises in either score, so the map follows it, if roughly
    first, second = (SCORES[name].to_numpy() for name in ("score", "score_2"))
    labels = TABLE["label"].to_numpy()
    assert np.corrcoef(found.apply(first, second), labels)[0, 1] > 0.5


def test_the_second_score_is_read_as_the_second(party: LabelsParty, batch: str) -> None:
    """One axis has one cell, so that only the other one can say anything."""
    y = TABLE["label"].to_numpy()
    nothing = np.random.default_rng(3).normal(0, 1, len(y))
    ids = TABLE["example_id"]
    for cells, table in (
        ("8x1", pa.table({"example_id": ids, "score": y, "score_2": nothing})),
        ("1x8", pa.table({"example_id": ids, "score": nothing, "score_2": y})),
    ):
        asked = {"shape": "bins", "scores_2": "float32", "option": f"cells={cells}", "epsilon": "2"}
        found = read(party, post(party, batch, table, **asked, additional_release=True))
        applied = found.apply(table["score"].to_numpy(), table["score_2"].to_numpy())
        assert found.answer.parameters["options"] == {"cells": cells}
        assert np.corrcoef(applied, y)[0, 1] > 0.8


def test_cells_may_be_fixed_beforehand_by_the_numbers_of_the_scores(party: LabelsParty, batch: str) -> None:
    asked = {"option": "cells=4x3", "scores": "0:4:4", "scores_2": "0:30:3", "loss": "absolute"}
    found = read(party, post(party, batch, SCORES.slice(0, 50), **asked))
    told = found.answer.result["map"]
    assert told["breakpoints"] == [[1, 2, 3], [1, 2]]
    assert (told["x_sizes"], found.loss) == ([4, 3], "absolute")
    assert found.apply(np.array([-1e300, 1e300]), np.array([-1e300, 1e300])).tolist() == [
        float(told["values"][0][0]),
        float(told["values"][-1][-1]),
    ]


def changed(**columns: Any) -> dict[str, Any]:
    rows = [{"example_id": "click-000000", "score": 1.0, "score_2": 2.0} | columns]
    return {"records": [{name: value for name, value in row.items() if value != "left out"} for row in rows]}


TWICE = {"records": changed()["records"] * 2}
BAD: list[tuple[dict[str, Any], Any, int, str]] = [
    ({}, changed(score_2=None), 422, "invalid-rows"),
    ({}, changed(score_2="x"), 422, "invalid-rows"),
    ({}, changed(score_2=1e999), 422, "invalid-rows"),
    ({}, changed(score=1e999), 422, "invalid-rows"),
    ({}, changed(score_2="left out"), 422, "invalid-rows"),
    ({}, changed(label=1), 422, "invalid-rows"),
    ({}, {"records": []}, 422, "invalid-file"),
    ({}, TWICE, 409, "duplicate-id"),
    ({"shape": "monotone"}, None, 422, "invalid-rows"),
    ({"shape": "monotone", "scores_2": "0:1:4"}, None, 422, "invalid-input"),
    ({"shape": "monotone", "score_2_column": "x"}, None, 422, "invalid-input"),
    ({"epsilon": "0"}, None, 422, "invalid-epsilon"),
    ({"epsilon": "0.0000005"}, None, 422, "invalid-epsilon"),
    ({"epsilon": "5"}, None, 403, "budget-exceeded"),
    ({"loss": "hinge"}, None, 422, "invalid-loss"),
    ({"option": "cells=10x10"}, None, 422, "invalid-mechanism"),
    ({"option": "cells=8x"}, None, 422, "invalid-mechanism"),
    ({"option": "cells=8,8"}, None, 422, "invalid-mechanism"),
    ({"option": "cells=0"}, None, 422, "invalid-mechanism"),
    ({"option": "values=1"}, None, 422, "invalid-mechanism"),
    ({"option": "values=257"}, None, 422, "invalid-mechanism"),
    ({"option": "levels=3"}, None, 422, "invalid-input"),
    ({"option": ["cells=2x2", "cells=3x3"]}, None, 422, "invalid-input"),
    ({"scores_2": "0:1"}, None, 422, "invalid-input"),
    ({"scores_2": "nan:1:4"}, None, 422, "invalid-input"),
    ({"scores_2": ""}, None, 422, "invalid-input"),
    ({"score_2_column": "x"}, None, 422, "invalid-input"),  # members of JSON have fixed names
]


def test_what_is_refused_charges_nothing_and_leaves_nothing(party: LabelsParty, batch: str) -> None:
    party.client().put(f"/v1/batches/{batch}/calibration-allowance", json={"epsilon": "4"})
    before = len(party.services.database.read("e", party.services.audit.events))
    for client in (party.client(), party.client("features")):
        for query, body, status, code in BAD:
            answer = client.post(
                f"/v1/batches/{batch}/calibrations",
                params=GRID | query,
                content=json.dumps(body if body is not None else records(SCORES)),
                headers={"Content-Type": "application/json"},
            )
            assert (answer.status_code, answer.json().get("code")) == (status, code), (query, body, answer.text)
            assert answer.json()["detail"].endswith(".")
    assert party.spent(batch) == "0"
    assert len(party.services.database.read("e", party.services.audit.events)) == before
    assert list((party.home / "work").iterdir()) == []


def test_a_bad_second_score_is_refused_by_its_row_and_field(party: LabelsParty, batch: str) -> None:
    broken = SCORES.slice(0, 5).to_pylist()
    broken[3]["score_2"] = float("nan")
    body = "example_id,score,score_2\n" + "".join(f"{r['example_id']},{r['score']},{r['score_2']}\n" for r in broken)
    refused = party.client().post(
        f"/v1/batches/{batch}/calibrations", params=GRID, content=body, headers={"Content-Type": "text/csv"}
    )
    is_problem(refused, 422, "invalid-rows")
    assert [(p["row"], p["field"], p["line"]) for p in refused.json()["rows"]] == [(4, "score_2", 5)]
    assert "nan" not in refused.text
    assert party.spent(batch) == "0"


DEGENERATE = {
    "one point": SCORES.slice(0, 1),
    "all scores equal": SCORES.set_column(1, "score", pa.array([1.0] * 300)).set_column(
        2, "score_2", pa.array([5.0] * 300)
    ),
    "one score equal": SCORES.set_column(2, "score_2", pa.array([5.0] * 300)),
    "half of one far outside any range": SCORES.set_column(1, "score", pa.array([1e300, 1.0, -1e300, 4.0] * 75)),
    "half of the batch": SCORES.slice(0, 150),
}


@pytest.mark.parametrize("numbers", ["float32", "0:5:50"])
@pytest.mark.parametrize("case", list(DEGENERATE))
def test_degenerate_scores_are_answered_with_a_map_within_the_domain(
    case: str, numbers: str, party: LabelsParty, batch: str
) -> None:
    found = read(party, post(party, batch, DEGENERATE[case], scores=numbers, scores_2=numbers.replace(":5:", ":60:")))
    falls_nowhere(found, np.linspace(-10, 10, 30), np.linspace(-10, 10, 30))
    if case in ("one point", "all scores equal"):
        assert found.pieces == 1
    if case == "one score equal":
        assert found.pieces == 8


def test_most_of_either_score_outside_its_range_is_refused(party: LabelsParty, batch: str) -> None:
    for numbers, field in ((("5:9:40", "0:60:60"), "score"), (("-2:9:40", "50:60:60"), "score_2")):
        refused = post(party, batch, SCORES, scores=numbers[0], scores_2=numbers[1])
        is_problem(refused, 422, "invalid-input")
        assert f"scores in '{field}' lie outside of" in refused.json()["detail"]
    assert party.spent(batch) == "0"


def test_a_map_does_not_say_which_ids_were_met(party: LabelsParty, batch: str) -> None:
    """Cells follow from the scores that were sent, those of strangers too, so both maps have the same ones."""
    party.client().put(f"/v1/batches/{batch}/calibration-allowance", json={"epsilon": "4"})
    reader, told = party.client("features"), []
    for prefix in ("click", "nobody"):
        ids = [f"{prefix}-{i:06d}" for i in range(40)]
        table = pa.table({"example_id": ids, "score": np.arange(40.0), "score_2": np.arange(40.0) ** 2})
        query = GRID | {"additional_release": True, "option": "cells=4x4"}
        asked = reader.post(f"/v1/batches/{batch}/calibrations", params=query, json=records(table))
        answer = asked.json()["id"]
        published(reader, answer)
        envelope = reader.get(f"/v1/answers/{answer}/document").content
        found = open_calibration(envelope, party.services.key.public, "features-party")
        told.append((found.answer.mechanism, found.answer.result["map"]["breakpoints"], found.answer.n))
    assert told[0] == told[1]
    assert party.spent(batch) == "2"


def test_every_table_format_takes_columns_of_other_names(party: LabelsParty, batch: str) -> None:
    renamed = SCORES.rename_columns(["id", "price", "model"])
    named = {"id_column": "id", "score_column": "model", "score_2_column": "price", "additional_release": True}
    macs, owner = set(), party.client()
    sink = pa.BufferOutputStream()
    pyarrow.csv.write_csv(renamed, sink)
    bodies = {
        "text/csv": sink.getvalue().to_pybytes(),
        "application/vnd.apache.arrow.stream": table_body("arrow", renamed),
        "application/vnd.apache.parquet": table_body("parquet", renamed),
    }
    for kind, body in bodies.items():
        query, headers = GRID | named | {"epsilon": "0.1"}, {"Content-Type": kind}
        answer = owner.post(f"/v1/batches/{batch}/calibrations", params=query, content=body, headers=headers)
        assert answer.status_code == 202, answer.text
        stored = party.services.database.read("t", lambda c: party.services.work.of_batch(c, batch))
        macs.add(next(a for a in stored if a.id == answer.json()["id"]).inputs_mac)
    assert len(macs) == 1
    twice = GRID | named | {"score_2_column": "model"}
    for kind, body in bodies.items():
        headers = {"Content-Type": kind}
        is_problem(
            owner.post(f"/v1/batches/{batch}/calibrations", params=twice, content=body, headers=headers),
            422,
            "invalid-input",
        )
    swapped = owner.post(
        f"/v1/batches/{batch}/calibrations",
        params=GRID | named | {"epsilon": "0.1", "score_column": "price", "score_2_column": "model"},
        content=bodies["text/csv"],
        headers={"Content-Type": "text/csv"},
    )
    stored = party.services.database.read("t", lambda c: party.services.work.of_batch(c, batch))
    assert next(a for a in stored if a.id == swapped.json()["id"]).inputs_mac not in macs


def test_a_repeated_call_charges_once(party: LabelsParty, batch: str) -> None:
    owner, headers = party.client(), {"Idempotency-Key": "once"}
    url = f"/v1/batches/{batch}/calibrations"
    first = owner.post(url, params=GRID, json=records(SCORES), headers=headers)
    assert first.json() == owner.post(url, params=GRID, json=records(SCORES), headers=headers).json()
    other = owner.post(url, params=GRID, json=records(two_scores(TABLE, 9)), headers=headers)
    is_problem(other, 422, "idempotency-conflict")
    assert party.spent(batch) == "1"


def test_both_python_clients_ask(party: LabelsParty, batch: str) -> None:
    party.client()  # starts the application
    app = party._clients[0].app
    _, key = party.services.apikeys.create("owner")
    table = SCORES.rename_columns(["id", "a", "b"])
    columns: dict[str, Any] = {"id_column": "id", "score_column": "a", "score_2_column": "b"}
    # a second score is enough to be asked for a map of two
    asking: dict[str, Any] = columns | {"option": ["cells=3x3"], "additional_release": True}
    with LabelsPartyClient("http://testserver", key, http=party._clients[0]) as client:
        with pytest.raises(RemoteProblem, match="one score"):
            client.calibrate(batch, table, "0.5", shape="monotone", **columns)
        assert party.spent(batch) == "0"
        asked = client.calibrate(batch, table, "0.5", **asking)
        assert client.wait_answer(asked["id"], 30)["parameters"]["options"] == {"cells": "3x3"}

    async def talk() -> bytes:
        transport = httpx.ASGITransport(app)
        async with AsyncLabelsPartyClient(
            "http://testserver", key, http=httpx.AsyncClient(transport=transport)
        ) as client:
            asked = await client.calibrate(batch, table, "0.5", **asking)
            await client.wait_answer(asked["id"], 30)
            return await client.answer_document(asked["id"])

    found = open_calibration(asyncio.run(talk()), party.services.key.public, "features-party")
    assert (found.scores, found.pieces) == (2, 9)


# --- on files, from one party to the other ----------------------------------------------------------------


class Files:
    """A folder with labels and scores, and both commands in it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.shell = folder, Shell(folder)
        pq.write_table(TABLE, folder / "labels.parquet")
        pq.write_table(SCORES.append_column("label", TABLE["label"]), folder / "scores.parquet")

    def labels_party(self, *more: object, code: int = 0) -> Any:
        words = ["calibrate", "--labels", "labels.parquet", "--label-column", "label", "--domain", "0:10"]
        words += ["--population", "shop", "--budget", "9", "--scores", "scores.parquet", "--id-column", "example_id"]
        words += ["--score-column", "score", "--epsilon", "1", "--out", "map.json", "--json"]
        environment = {"LABELS_PARTY_HOME": str(self.folder / "labels-home")}
        done = command("labels-party", *words, *more, folder=self.folder, environment=environment)
        assert done.returncode == code, (done.stdout, done.stderr)
        if not code:
            return json.loads(done.stdout)
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
        return done.stderr

    @property
    def key(self) -> Path:
        return self.folder / "labels-home" / "keys" / "signing.pub"

    @property
    def applying(self) -> list[object]:
        words: list[object] = ["calibrate", "--map", "map.json", "--labels-key", self.key, "--scores", "scores.parquet"]
        return [*words, "--id-column", "example_id", "--score-column", "score"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """With a map of two scores in map.json, and one of one score in one.json."""
    found = Files(tmp_path_factory.mktemp("files"))
    found.labels_party("--score-2-column", "score_2", "--option", "cells=4x5")
    found.labels_party("--additional-release", "--out", "one.json")
    return found


def test_a_file_of_two_scores_goes_through_the_map_and_is_drawn(files: Files) -> None:
    two = ["--score-2-column", "score_2"]
    told = files.shell.json(
        *(*files.applying, *two, "--out", "out.parquet", "--label-column", "label", "--plots", "plots")
    )
    assert (told["shape"], told["pieces"], told["rows"]) == ("bins", 20, 300)
    written = pq.read_table(files.folder / "out.parquet")
    assert written.column_names == ["example_id", "score", "score_2", "calibrated"]
    found = open_calibration(read_answer(files.folder / "map.json"), VerifyingKey.load(files.key), "features-party")
    both = [SCORES[name].to_numpy() for name in ("score", "score_2")]
    assert np.array_equal(written["calibrated"].to_numpy(), found.apply(*both))
    assert told["errors"]["mse_after"] == pytest.approx(
        float(np.mean((found.apply(*both) - TABLE["label"].to_numpy()) ** 2))
    )
    for when in ("before", "after"):
        assert (files.folder / "plots" / f"{when}.png").read_bytes().startswith(b"\x89PNG")
    files.shell.json(*files.applying, *two, "--out", "lines.parquet", "--interpolate")
    lines = pq.read_table(files.folder / "lines.parquet")["calibrated"].to_numpy()
    assert np.array_equal(lines, found.interpolated(True).apply(*both))
    assert not np.array_equal(lines, written["calibrated"].to_numpy())


def test_maps_and_score_columns_must_agree_before_any_accounting(files: Files, tmp_path: Path) -> None:
    shell = Shell(files.folder)
    shell.env |= {"FEATURES_PARTY_HOME": str(tmp_path)}
    one = [str(w).replace("map.json", "one.json") for w in files.applying]
    refused = {
        "name the second with --score-2-column": [*files.applying, "--out", "x.parquet"],
        "a map of one score": [*one, "--score-2-column", "score_2", "--out", "x.parquet"],
        "differ": [*files.applying, "--score-2-column", "score", "--out", "x.parquet"],
        "none": [*files.applying, "--score-2-column", "none", "--out", "x.parquet"],
        "go with --scores": ["calibrate", "--map", "map.json", "--model", "m", "--score-2-column", "s", "--out", "x"],
    }
    for words, arguments in refused.items():
        assert words in shell.refused(*arguments, code=2)
    assert shell.json("audit", "show") == []


LABELS_REFUSED: list[tuple[list[str], str]] = [
    (["--shape", "grid"], "--score-2-column"),
    (["--shape", "monotone", "--score-2-column", "score_2"], "'bins' or 'grid'"),
    (["--shape", "monotone", "--numbers-2", "0:1:8"], "'bins' or 'grid'"),
    (["--numbers-2", "0:1:8"], "--score-2-column"),
    (["--shape", "grid", "--score-2-column", "score"], "a name of its own"),
    (["--shape", "grid", "--score-2-column", "none"], "no column 'none'"),
    (["--shape", "grid", "--score-2-column", "score_2", "--option", "cells=10x10"], "too fine"),
    (["--shape", "grid", "--score-2-column", "score_2", "--numbers-2", "1:0:4"], "LO:HI:STEPS"),
]


@pytest.mark.parametrize(("arguments", "words"), LABELS_REFUSED, ids=[words for _, words in LABELS_REFUSED])
def test_bad_usage_is_one_sentence_and_seals_nothing(arguments: list[str], words: str, tmp_path: Path) -> None:
    files = Files(tmp_path)
    assert words in files.labels_party(*arguments, code=2)
    assert not (tmp_path / "map.json").exists()
    environment = {"LABELS_PARTY_HOME": str(tmp_path / "labels-home")}
    if files.key.exists():
        told = command("labels-party", "budget", "--json", folder=tmp_path, environment=environment).stdout
        assert json.loads(told) == []
