"""`train --engine disk`: the trees of a training in memory, up to which rows share a fold, without its memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest

from features_party.spark import files, training
from features_party.tables import feature_files
from label_dp.columnar import rows
from tests.support.features_cli import Shell
from tests.support.trees_from_files import (
    KEY,
    alike,
    learns_from_two_messages,
    same_choices,
    trained,
    world,
)

pytestmark = pytest.mark.extended
DISK = ("--engine", "disk", "--model", "trees")
ASK = ("train", "--message", "m1.parquet", *KEY)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Files of 1,500 rows."""
    monkeypatch.setattr(feature_files, "BATCH_ROWS", 1500)
    monkeypatch.setattr(rows, "COMBINED", 1)
    return Shell(tmp_path)


def test_the_model_is_that_of_trees_in_memory(shell: Shell) -> None:
    labels = world(shell)
    local, disk = trained(shell, "disk")
    alike(shell, labels, "local", "disk")
    same_choices(local, disk)
    assert disk["statistics"]
    assert disk["notes"][0] == "the trees were grown from files"
    assert any("column 'name' was left out" in note for note in disk["notes"])
    assert "a training from files holds no rows out" in (shell.folder / "disk" / "card.md").read_text()
    assert not list((shell.folder / "home" / "spill").iterdir())
    shell.json(*ASK, "--features", "features.parquet", "--out", "again", *DISK)
    assert (shell.folder / "again" / "model.json").read_bytes() == (shell.folder / "disk" / "model.json").read_bytes()
    events = shell.json("audit", "show")
    assert [event["kind"] for event in events].count("model-trained") == 3


def test_messages_that_share_examples_and_the_poisson_loss(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    learns_from_two_messages(shell, "disk", monkeypatch)


def test_named_categories_of_numbers_and_days_are_those_of_memory(shell: Shell) -> None:
    """Spark refuses them, since it spells them in its own way."""
    labels = world(shell)
    local, disk = trained(shell, "disk", "--categorical", "day", "--categorical", "flag", "--exclude", "age")
    assert disk["features"] == local["features"]
    assert disk["features"][0]["name"] == "country"
    one, other = (
        pq.read_table(shell.folder / f"{name}.parquet")["prediction"].to_numpy() for name in ("local", "disk")
    )
    assert np.mean((one - other) ** 2) < 0.1 * np.var(labels)


def test_a_table_in_parts_whose_folders_name_a_column(shell: Shell) -> None:
    world(shell)
    table = pq.read_table(shell.folder / "features.parquet")
    for at, day in enumerate(("mon", "tue")):
        folder = shell.folder / "parts" / f"weekday={day}"
        folder.mkdir(parents=True)
        pq.write_table(table.slice(3000 * at, 3000), folder / "rows.parquet")
    card = shell.json(*ASK, "--features", "parts", "--out", "model", *DISK)
    assert "weekday" in {feature["name"] for feature in card["features"]}


def test_no_more_rows_are_encoded_at_once_than_a_file_has(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Besides those of which crossed effects are learned, which SOME_CELLS bounds."""
    monkeypatch.setattr(training, "SOME_CELLS", 500 * 7)
    world(shell)
    encode, sizes = training.FeatureSchema.encode, list[int]()

    def watched(schema: Any, features: pa.Table) -> Any:
        sizes.append(features.num_rows)
        return encode(schema, features)

    monkeypatch.setattr(training.FeatureSchema, "encode", watched)
    shell.json(*ASK, "--features", "features.parquet", "--out", "model", *DISK)
    assert max(sizes) <= 1500
    assert sum(sizes) >= 6000


def test_progress_rises_to_its_end(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    world(shell)
    seen = list[tuple[str, float]]()
    shown = files.foretold
    monkeypatch.setattr(files, "foretold", lambda _: shown(lambda what, share: seen.append((what, share))))
    shell.json(*ASK, "--features", "features.parquet", "--out", "model", *DISK)
    shares = [share for _, share in seen]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 0.99)
    assert max(share for what, share in seen if what.startswith("tree")) == pytest.approx(0.98)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--model", "linear"), "--engine disk trains the model trees; the model linear needs the local engine"),
        (("--warm-start", "m_1"), "--engine disk takes no earlier model up"),
        (("--loss", "absolute"), "--engine disk trains with the losses squared and poisson, not with absolute"),
        (("--exclude", "none"), "There is no feature column 'none'"),
        (("--list-unmatched", "ids.parquet"), "lists no ids without a partner"),
        (("--refuse-unmatched", "0.1"), "3,000 of 6,000 ids of the messages (50%) have no features"),
    ],
)
def test_what_it_does_not_do_is_said(shell: Shell, more: tuple[str, ...], said: str) -> None:
    world(shell)
    table = pq.read_table(shell.folder / "features.parquet")
    pq.write_table(table.slice(0, 3000), shell.folder / "some.parquet")
    assert said in shell.refused(
        *ASK, "--features", "some.parquet", "--out", "model", "--engine", "disk", *more, code=2
    )
    assert not (shell.folder / "model").exists()
    assert not list((shell.folder / "home" / "spill").iterdir())


def test_a_csv_is_refused_before_a_message_is_read(shell: Shell) -> None:
    world(shell)
    arrow_csv.write_csv(pq.read_table(shell.folder / "features.parquet").drop_columns(["at"]), shell.folder / "f.csv")
    error = shell.refused(*ASK, "--features", "f.csv", "--out", "model", *DISK, code=2)
    assert "takes features as Parquet" in error
    assert shell.json("audit", "show") == []


def test_codes_that_do_not_fit_into_memory_are_refused(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "COPIES", 10.0)
    world(shell)
    shell.env["FEATURES_PARTY_TRAINING_MEMORY_MB"] = "1"
    error = shell.refused(*ASK, "--features", "features.parquet", "--out", "model", *DISK, code=2)
    assert "Raise FEATURES_PARTY_TRAINING_MEMORY_MB" in error
