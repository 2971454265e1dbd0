"""What the features party writes of a message of names: the name, and no corrected value of more than two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from features_party.files.jobs import Files, join_files
from features_party.integrations.frames import labeled_frame
from features_party.tables.feature_tables import read_features
from features_party.tables.join import join
from features_party.tables.output import write_table
from label_dp.errors import InvalidInput
from tests.support.labels import LabelsParty
from tests.support.messages import features_party

IDS = [f"c{i:03d}" for i in range(300)]


@pytest.fixture
def features(tmp_path: Path) -> Path:
    write_table(pa.table({"click_id": IDS, "x": [float(i) for i in range(300)]}), tmp_path / "features.parquet")
    return tmp_path / "features.parquet"


def message(lite: LabelsParty, names: list[str], **asked: Any) -> Path:
    labels = pa.table({"example_id": IDS, "label": [names[i % len(names)] for i in range(300)]})
    batch = lite.sealed_batch(labels, domain=",".join(names), lifetime="50")
    answer = lite.client().post(f"/v1/batches/{batch}/releases", json={"epsilon": "40"} | asked)
    assert answer.status_code == 202, answer.text
    assert lite.services.pipeline.run(answer.json()["id"])
    return lite.bundle(answer.json()["id"]).path


def joined(
    lite: LabelsParty, path: Path, features: Path, folder: Path, correction: str = "auto"
) -> tuple[Any, pa.Table]:
    services = features_party(folder / "features-home")
    out = folder / "joined.parquet"
    files = Files([path], lite.services.key.public, features, "click_id", out, None, True)
    try:
        data = join_files(services, files, correction, lambda what, done: None)
    finally:
        services.close()
    return data, pq.read_table(out)


def test_three_names_are_written_without_a_corrected_value(lite: LabelsParty, features: Path, tmp_path: Path) -> None:
    names = ["toys", "books", "garden"]
    path = message(lite, names, mechanism="rr")
    data, table = joined(lite, path, features, tmp_path)
    assert table.column_names == ["click_id", "x", "raw_label", "release"]
    # at ε = 40 no label is ever another one: a chance of 2e-17 a row
    assert table["raw_label"].to_pylist() == [names[i % 3] for i in range(300)]
    assert (data["messages"][0]["applied"], data["messages"][0]["noise_variance"]) == (None, None)
    with pytest.raises(InvalidInput, match="no corrected value"):
        joined(lite, path, features, tmp_path, "debias")


def test_the_likeliest_names_keep_their_names(lite: LabelsParty, features: Path, tmp_path: Path) -> None:
    names = [f"class {i}" for i in range(8)]
    prior = {"probabilities": [0.01, 0.3, 0.01, 0.3, 0.01, 0.01, 0.35, 0.01]}
    path = message(lite, names, mechanism="rr-with-prior", prior=prior, epsilon="0.5")
    _, table = joined(lite, path, features, tmp_path)
    assert set(table["raw_label"].to_pylist()) == {"class 1", "class 3", "class 6"}


def test_two_names_have_a_corrected_number_beside_them(lite: LabelsParty, features: Path, tmp_path: Path) -> None:
    data, table = joined(lite, message(lite, ["no", "yes"]), features, tmp_path)
    assert table["raw_label"].to_pylist() == ["no", "yes"] * 150
    assert table["corrected_label"].to_pylist() == pytest.approx([0.0, 1.0] * 150, abs=1e-6)
    assert data["messages"][0]["applied"] == "debias"


def test_frames_and_joins_in_memory_say_the_same(lite: LabelsParty, features: Path, tmp_path: Path) -> None:
    path = message(lite, ["toys", "books", "garden"], mechanism="rr")
    _, table = joined(lite, path, features, tmp_path)
    home = tmp_path / "features-home"
    frame = labeled_frame(path, features, id_column="click_id", labels_key=lite.services.key.public, home=home)
    assert frame.column_names == table.column_names
    assert frame["raw_label"].to_pylist() == table["raw_label"].to_pylist()
    with pytest.raises(InvalidInput, match="no corrected value"):
        labeled_frame(
            path,
            features,
            id_column="click_id",
            labels_key=lite.services.key.public,
            correction="posterior",
            home=home,
        )
    services = features_party(tmp_path / "features-home")
    accepted = services.messages.accept(path, lite.services.key.public)
    assert accepted.summary()["names"] == ["toys", "books", "garden"]
    assert join([accepted], read_features(features, "click_id")).labels.names == ("toys", "books", "garden")
    services.close()
