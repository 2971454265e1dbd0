"""`labels-party calibrate`, `answer` and `allow-calibrations`: on files, resumed, refused at no charge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from label_dp.companions.kinds.calibration import open_calibration
from label_dp.documents.answer import read_answer
from label_dp.documents.signing import VerifyingKey
from tests.support.calibrations import charged, score_table
from tests.support.commands import command
from tests.support.labels import LabelsParty, label_table

pytestmark = pytest.mark.extended

TABLE = label_table(120)
SCORES = score_table(TABLE)


class Party:
    """A folder with `labels.parquet` and `scores.parquet`, and the command in it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "home"
        pq.write_table(TABLE, folder / "labels.parquet")
        pq.write_table(SCORES, folder / "scores.parquet")

    def run(self, *words: str, code: int = 0) -> Any:
        done = command("labels-party", *words, folder=self.folder, environment={"LABELS_PARTY_HOME": str(self.home)})
        assert done.returncode == code, (done.stdout, done.stderr)
        if code:
            assert done.stdout == ""
            assert done.stderr.startswith("error: ")
            assert done.stderr.count("\n") == 1
            return done.stderr
        return json.loads(done.stdout)

    def calibrate(self, *more: str, code: int = 0, **changes: str | None) -> Any:
        options: dict[str, str | None] = {
            "labels": "labels.parquet",
            "label_column": "label",
            "domain": "0:10",
            "population": "shop",
            "budget": "2",
            "missing_label": "0",
            "scores": "scores.parquet",
            "id_column": "example_id",
            "score_column": "score",
            "epsilon": "1",
            "out": "map.json",
        }
        given = {k: v for k, v in (options | changes).items() if v is not None}
        words = [part for k, v in given.items() for part in (f"--{k.replace('_', '-')}", v)]
        return self.run("calibrate", *words, *more, "--json", code=code)

    def spent(self) -> list[str]:
        if not (self.home / "keys").exists():
            return []
        return [b["epsilon_spent"] for p in self.run("budget", "--json") for b in p["batches"]]


@pytest.fixture
def party(tmp_path: Path) -> Party:
    return Party(tmp_path)


def test_files_in_one_signed_map_out_and_once_more_for_nothing(party: Party) -> None:
    told = party.calibrate()
    key = VerifyingKey.load(Path(told["labels_key"]))
    found = open_calibration(read_answer(party.folder / "map.json"), key, "features-party")
    assert (found.answer.n, str(found.answer.epsilon_spent), told["sha256"]) == (120, "1", found.digest)
    refused = party.calibrate(out="again.json", code=1)
    assert f"labels-party answer {told['answer']}" in refused
    party.run("answer", told["answer"], "--out", "again.json", "--json")
    assert (party.folder / "again.json").read_bytes() == (party.folder / "map.json").read_bytes()
    of_file = ("labels", "label_column", "domain", "population", "budget", "missing_label")
    of_batch: dict[str, str | None] = dict.fromkeys(of_file)
    inspected = party.run("inspect", "map.json", "--json")
    assert (inspected["verified"], inspected["sha256"], inspected["pieces"]) == (True, found.digest, told["pieces"])
    bad = party.folder / "bad.json"
    bad.write_bytes((party.folder / "map.json").read_bytes().replace(b'"payload":"ey', b'"payload":"eX'))
    assert "signature" in party.run("inspect", "bad.json", code=1)
    more = party.calibrate("--additional-release", batch=told["batch"], out="more.json", epsilon="0.5", **of_batch)
    assert more["epsilon_spent"] == "1.5"
    assert party.spent() == ["1.5"]
    allowed = party.run("allow-calibrations", told["batch"], "--epsilon", "0.5", "--json")
    assert allowed["epsilon_left"] == "0.5"
    assert [e["kind"] for e in party.run("audit", "show", "--json")].count("answer-published") == 2


def test_an_interrupted_run_is_finished_and_not_charged_again(party: Party) -> None:
    with LabelsParty(party.home) as services:
        batch = services.sealed_batch(TABLE, lifetime="2")
        left = charged(services, batch, SCORES)
    of_file = ("labels", "label_column", "domain", "population", "budget", "missing_label")
    of_batch: dict[str, str | None] = dict.fromkeys(of_file)
    assert party.calibrate(batch=batch, **of_batch)["answer"] == left
    assert party.spent() == ["1"]


REFUSED: list[tuple[dict[str, str | None], int]] = [
    ({"epsilon": "3"}, 1),
    ({"epsilon": "0"}, 2),
    ({"scores": "none.parquet"}, 2),
    ({"scores": "bad.csv"}, 2),
    ({"score_column": "label"}, 2),
    ({"domain": None}, 2),
    ({"labels": None}, 2),
    ({"batch": "bat_1"}, 2),
    ({"shape": "round"}, 2),
    ({"option": "levels"}, 2),
    ({"numbers": "1:0:3"}, 2),
    ({"numbers": "100:200:50"}, 2),  # where no score is
    ({"out": "nowhere/map.json"}, 2),
    ({"out": "labels.parquet"}, 2),
]


@pytest.mark.parametrize(("changes", "code"), REFUSED, ids=lambda value: str(value))
def test_a_refusal_is_one_sentence_and_charges_nothing(changes: dict[str, str | None], code: int, party: Party) -> None:
    (party.folder / "bad.csv").write_text("example_id,score\nclick-000000,1\nclick-000001,nan\n")
    party.calibrate(code=code, **changes)
    assert party.spent() == []
    assert not (party.folder / "map.json").exists()


def test_unknown_ids_are_told_to_the_owner_by_row_and_cost_nothing(party: Party) -> None:
    pq.write_table(pa.table({"example_id": ["click-000001", "x"], "score": [0.0, 1.0]}), party.folder / "s.parquet")
    assert "Row 2" in party.calibrate(scores="s.parquet", code=2)
    assert party.spent() == ["0"]  # sealed, not charged
    party.calibrate()
    assert party.spent() == ["1"]
