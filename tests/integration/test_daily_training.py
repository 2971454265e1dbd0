"""`features-party daily`: a day of a training job, from its `pipeline.toml`."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from features_party.models.folder import load_model
from tests.support.features_cli import Shell
from tests.support.labels import LabelsParty, label_table
from tests.support.messages import Sender, World, one_bit, world
from tests.support.serving import serving

pytestmark = pytest.mark.extended

DAYS = [world(1500, seed=day, prefix=f"day{day}-") for day in range(3)]
TOML = 'features = "features/*.parquet"\nid_column = "id"\nmessages = ["in"]\nlabels_key = "labels-signing.pub"\n'
TRAIN = '[train]\nmodel = "linear"\n'
BLIND = TRAIN + 'exclude = ["age", "country"]\n'  # but for a column that says nothing


class Job:
    """A folder with a pipeline, and the days that came."""

    def __init__(self, folder: Path) -> None:
        self.shell, self.sender, self.folder = Shell(folder), Sender(), folder
        self.sender.public_key(folder)
        (folder / "features").mkdir()
        (folder / "in").mkdir()

    def arrives(self, number: int, epsilon: str = "3") -> None:
        day: World = DAYS[number]
        table = day.table("id").append_column("nothing", pa.array(np.arange(len(day.ids)) % 7))
        pq.write_table(table, self.folder / "features" / f"{number}.parquet")
        path, name = self.folder / "in" / f"{number}.parquet", f"rel_{number}"
        channel = one_bit(epsilon=float(epsilon))
        self.sender.write(path, day.ids, day.labels, channel, epsilon=epsilon, release=name, batch=f"bat_{number}")

    def says(self, train: str = TRAIN, more: str = "") -> None:
        (self.folder / "pipeline.toml").write_text(TOML + more + train)

    def runs(self, *more: str) -> dict[str, Any]:
        found: dict[str, Any] = self.shell.json("daily", "pipeline.toml", *more)
        return found

    def notes(self, run: dict[str, Any]) -> list[str]:
        return list(json.loads((self.folder / run["today"] / "card.json").read_text("utf-8"))["notes"])

    def error(self) -> float:
        """Of the kept model, on true labels of examples that nobody trained on."""
        new = world(2000, seed=9, prefix="new")
        table = new.features.append_column("nothing", pa.array(np.zeros(2000, np.int64)))
        predicted = load_model(self.folder / "daily" / "current", None).model.predict(table, threads=1)
        return float(np.mean((predicted - new.labels) ** 2))


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_the_better_model_is_kept_whichever_day_made_it(job: Job) -> None:
    job.arrives(0)
    job.says(BLIND)
    first = job.runs()
    assert (first["kept"], first["comparison"]) == ("today", None)
    blind = job.error()
    job.arrives(1)
    job.says()
    second = job.runs()
    assert (second["kept"], second["messages"]) == ("today", ["rel_0", "rel_1"])
    assert second["comparison"]["low"] > 0
    good = job.error()
    # what privatized labels said is what true labels say
    assert second["comparison"]["low"] < blind - good < second["comparison"]["high"]
    job.arrives(2)
    job.says(BLIND)
    third = job.runs()
    assert (third["kept"], third["model"]) == ("yesterday", second["model"])
    assert third["comparison"]["high"] < 0
    assert job.error() == good
    assert "above yesterday's" in third["why"]
    assert job.runs()["kept"] == "unchanged"
    assert job.runs("--again")["kept"] == "yesterday"


def test_nothing_new_trains_nothing(job: Job) -> None:
    job.arrives(0)
    job.says()
    kept = job.runs()
    again = job.runs()
    assert (again["kept"], again["model"]) == ("unchanged", kept["model"])
    assert len(list((job.folder / "daily" / "models").iterdir())) == 1
    assert "no message came" in job.shell.run("daily", "pipeline.toml").stdout


def test_every_run_leaves_its_record(job: Job) -> None:
    job.arrives(0)
    job.says()
    record = job.runs()
    (kept,) = (job.folder / "daily" / "runs").glob("*.json")
    assert f"Kept is the model of today: {record['why']}" in (job.shell.folder / record["report"]).read_text(
        encoding="utf-8"
    )
    assert json.loads(kept.read_text("utf-8")) == record
    assert record["trained_rows"] + record["held_out_examples"] == 1500
    assert record["epsilon"][0]["epsilon_per_example"] == "3"
    shown = job.shell.run("daily", "pipeline.toml", "--again").stdout
    assert "examples held out" in shown


def test_a_rehearsal_of_the_whole_job(job: Job) -> None:
    job.arrives(0)
    job.shell.run("rehearse", "--features", "features/0.parquet", "--domain", "0:10", "--epsilon", "3")
    said = TOML.replace('["in"]', '["rehearsal.parquet"]').replace("labels-signing.pub", "rehearsal.pub")
    (job.folder / "pipeline.toml").write_text(said + TRAIN)
    found = job.runs()
    assert (found["rehearsal"], found["epsilon"]) == (True, [])
    assert job.runs("--again")["comparison"] is not None
    assert job.shell.json("audit", "show") == []


def test_runs_start_warm_but_for_each_seventh(job: Job) -> None:
    job.arrives(0)
    job.says('[train]\nmodel = "trees"\n')
    runs = [job.runs("--again") for _ in range(8)]
    assert [run["warm_start"] for run in runs] == [None] + 6 * [runs[0]["today"]] + [None]
    depends = [any("depends on the messages" in note for note in job.notes(run)) for run in runs]
    assert depends == [False] + 6 * [True] + [False]
    assert "warm start" in job.shell.run("daily", "pipeline.toml", "--again").stdout
    job.says('[train]\nmodel = "trees"\nwarm_start = "none"\n')
    assert job.runs("--again")["warm_start"] is None
    job.says()  # another kind of model makes other choices
    assert job.runs("--again")["warm_start"] is None
    job.says(f'[train]\nmodel = "trees"\nwarm_start = "{runs[3]["today"]}"\n')
    assert job.runs("--again")["warm_start"] == runs[3]["today"]


def test_it_pulls(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    with LabelsParty(tmp_path / "labels") as party:
        table = label_table(400, prefix="a", seed=1)
        release = party.release(party.sealed_batch(table, "shop", label="revenue", audiences=["features-party"]), "3")
        features = table.select(["example_id"]).append_column("x", pa.array(np.arange(400) % 5))
        pq.write_table(features, tmp_path / "features.parquet")
        (tmp_path / "pub").write_bytes(party.services.home.public_key.read_bytes())
        shell.env["FEATURES_PARTY_LABELS_API_KEY"] = party.services.apikeys.create("features", "features-party")[1]
        with serving(party.client().app) as url:
            text = 'features = "features.parquet"\nid_column = "example_id"\nlabels_key = "pub"\n'
            text += f'[pull]\nurl = "{url}"\nsince = 2020-01-01\npopulation = "shop"\n{TRAIN}'
            (tmp_path / "pipeline.toml").write_text(text)
            found = shell.json("daily", "pipeline.toml")
            assert (found["fresh"], found["messages"]) == ([release], [release])
            assert shell.json("daily", "pipeline.toml")["kept"] == "unchanged"
            assert shell.json("budget")[0]["epsilon_per_example"] == "3"


REFUSED = {
    "no TOML": ("features = ", "is not TOML"),
    "unknown member": (TOML + "colour = 1\n", "colour"),
    "no messages": (TOML.replace('messages = ["in"]\n', ""), "give [pull]"),
    "no such option of train": (TOML + '[train]\nmodel = "magic"\n', "train.model"),
    "a share that holds all out": (TOML + "held_out = 0.9\n", "held_out"),
    "no features": (TOML.replace("features/*", "elsewhere/*") + TRAIN, "There is no feature file"),
}


@pytest.mark.parametrize(("text", "said"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_pipeline_is_a_sentence(job: Job, text: str, said: str) -> None:
    job.arrives(0)
    (job.folder / "pipeline.toml").write_text(text)
    assert said in job.shell.refused("daily", "pipeline.toml", code=2)
    assert not (job.folder / "daily" / "current").exists()


def test_two_runs_of_one_folder_do_not_meet(job: Job) -> None:
    job.arrives(0)
    job.says()
    (job.folder / "daily").mkdir()
    handle = os.open(job.folder / "daily", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        assert "Another run" in job.shell.refused("daily", "pipeline.toml", code=1)
    finally:
        os.close(handle)


def test_another_label_is_not_compared(job: Job) -> None:
    job.arrives(0)
    job.says()
    job.runs()
    day = DAYS[1]
    for path in (job.folder / "in").iterdir():
        path.unlink()
    job.sender.write(
        job.folder / "in" / "v.parquet", day.ids, day.labels / 2, one_bit("0:5"), release="rel_v", batch="bat_v"
    )
    pq.write_table(day.table("id").append_column("nothing", pa.array(np.zeros(1500, np.int64))),
                   job.folder / "features" / "1.parquet")  # fmt: skip
    assert "label domains" in job.runs()["why"]
