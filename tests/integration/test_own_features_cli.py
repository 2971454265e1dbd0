"""`labels-party rectangle` and `linear-model`: planned, charged, written, refused; on sealed batches and on files."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from label_dp.companions.kinds.linear_model import open_linear_model
from label_dp.companions.kinds.rectangle import open_rectangle
from label_dp.documents.signing import VerifyingKey
from tests.support.labels_cli import Run, refused
from tests.support.own_features import tables

pytestmark = pytest.mark.extended

NUMBERS = ["--feature", "x=0:10", "--feature", "y=0:10"]
RULES = ["--label-column", "label", "--domain", "0:10", "--missing-label", "0", "--population", "shop", "--budget", "9"]
FILES = ["--labels", "labels.parquet", *RULES, "--budget-delta", "0.00001", "--features", "features.parquet"]
ASKED = ["--epsilon", "4", "--threshold", "5", *NUMBERS]


@pytest.fixture
def files(home: Path) -> Path:
    for name, table in zip(("labels", "features"), tables(), strict=True):
        pq.write_table(table, home.parent / f"{name}.parquet")
    return home.parent


def test_a_file_is_sealed_planned_charged_and_answered(run: Run, home: Path, files: Path) -> None:
    first = run("rectangle", *FILES, *ASKED, "--out", "r.json", "--json")
    assert first.code == 0, first.err
    told = first.json
    assert (told["epsilon"]["total"], told["delta_lifetime"], told["found"]) == ("4", "0.00001", True)
    key = VerifyingKey.load(home / "keys" / "signing.pub")
    found = open_rectangle((files / "r.json").read_bytes(), key, "features-party")
    assert (found.sides, found.answer.adjacency) == (told["sides"], told["adjacency"])
    # the same file again is the same batch: charged on top, if asked for; its features are stored already
    again = ["linear-model", "--batch", told["batch"], "--epsilon", "2", *NUMBERS, "--feature", "kind=a,b,c"]
    refused(run(*again, "--out", "m.json"), 1, "--additional-release")
    assert not (files / "m.json").exists()
    plan = run(*again, "--plan", "--json").json
    model = run(*again, "--out", "m.json", "--additional-release", "--json").json
    assert (plan["parameters"], plan["epsilon"]) == (model["parameters"], model["epsilon"])
    assert open_linear_model((files / "m.json").read_bytes(), key, None).weights == model["weights"]
    assert model["epsilon_spent"] == "6"
    assert run("answer", told["answer"], "--out", "copy.json").code == 0
    assert (files / "copy.json").read_bytes() == (files / "r.json").read_bytes()
    shown = " ".join(run("audit", "show").out.split())
    assert f"rectangle {told['answer']} charged ε 4" in shown
    assert f"linear-model {model['answer']} charged ε 2" in shown
    assert run("audit", "verify").code == 0


def test_people_see_sides_weights_and_plans(run: Run, home: Path, files: Path) -> None:
    seen = run("rectangle", *FILES, *ASKED, "--out", "r.json").out
    assert "Inside" in seen
    assert "4 of 9 spent per example" in seen
    assert "'range'" not in seen
    batch = run("budget", "--json").json[0]["batches"][0]["batch"]
    of = ["--batch", batch, "--epsilon", "1", *NUMBERS]
    planned = run("rectangle", *of, "--threshold", "5", "--plan").out
    assert "positives_sliced_off" in planned
    weights = run("linear-model", *of, "--additional-release", "--out", "m.json").out
    assert "constant" in weights
    assert "middle" in weights
    missing = ["--batch", batch, "--epsilon", "1", "--feature", "z=0:1", "--out", "z.json", "--additional-release"]
    refused(run("linear-model", *missing), 2, "no column 'z'")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["rectangle", *FILES, *ASKED], ("--out",)),
        (["rectangle", *FILES, *ASKED, "--plan"], ("--batch",)),
        (["rectangle", *FILES, "--batch", "bat_1", *ASKED, "--out", "o"], ("--labels",)),
        (["rectangle", *ASKED, "--out", "o"], ("--batch",)),
        (["rectangle", *FILES, *ASKED, "--feature", "kind=a,b", "--out", "o"], ("numbers with a range",)),
        (["rectangle", *FILES, *ASKED, "--feature", "x", "--out", "o"], ("NAME=LOW:HIGH",)),
        (["rectangle", *FILES, *ASKED, "--feature", "z=0:1", "--out", "o"], ("no column 'z'",)),
        (["rectangle", *FILES, *ASKED, "--feature", "kind=0:1", "--out", "o"], ("field 'kind'", "number")),
        (["rectangle", *FILES, *ASKED, "--method", "slices", "--out", "o"], ("δ = 0",)),
        (["rectangle", *FILES, "--epsilon", "0.01", "--threshold", "5", *NUMBERS, "--out", "o"], ("there are 1,500",)),
        (["linear-model", *FILES, "--epsilon", "0", *NUMBERS, "--out", "o"], ("greater than zero",)),
        (["linear-model", *FILES, "--epsilon", "nan", *NUMBERS, "--out", "o"], ("ε",)),
        (["linear-model", *FILES, "--epsilon", "1", *NUMBERS, "--rule", "best", "--out", "o"], ("uniform",)),
        (["linear-model", *FILES, "--epsilon", "1", *NUMBERS, "--clip", "65", "--out", "o"], ("64",)),
    ],
)
def test_bad_options_are_sentences_and_charge_nothing(
    command: list[str], words: tuple[str, ...], run: Run, home: Path, files: Path
) -> None:
    refused(run(*command), 2, *words)
    assert not (files / "o").exists()
    if (home / "keys").exists():
        assert all(b["epsilon_spent"] == "0" for p in run("budget", "--json").json for b in p["batches"])


def test_what_is_wrong_with_features_is_said_before_a_batch_is_sealed(run: Run, home: Path, files: Path) -> None:
    refused(run("linear-model", *FILES, "--epsilon", "1", "--feature", "z=0:1", "--out", "o"), 2, "no column 'z'")
    assert not run("budget", "--json").json


def test_an_interrupted_answer_is_taken_up_without_a_second_charge(
    run: Run, home: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from labels_party.companions import files as answers

    with monkeypatch.context() as patch:
        patch.setattr(answers, "finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run("rectangle", *FILES, *ASKED, "--out", "r.json").code != 0
    done = run("rectangle", *FILES, *ASKED, "--out", "r.json", "--json")
    assert done.code == 0, done.err
    assert done.json["epsilon_spent"] == "4"
