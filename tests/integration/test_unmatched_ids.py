"""Ids that meet nothing are said aloud, with the likely reason, and refused on request."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from features_party.daily.comparison import split
from features_party.receive.accepted import AcceptedMessage
from features_party.tables.feature_files import FeatureFile
from features_party.tables.feature_tables import feature_table
from features_party.tables.join import join
from features_party.tables.join_spilled import SpilledJoin
from features_party.tables.unmatched import SAMPLE, WATCHED, Limits, Unmatched
from label_dp.documents.signing import VerifyingKey
from label_dp.errors import InvalidTable
from tests.support.features_api import WORLD, message_files, running
from tests.support.features_cli import Shell
from tests.support.messages import Sender, features_party

KEY = ("--labels-key", "labels-signing.pub")
ASK = ("--features", "features.parquet", "--id-column", "id")
HALF = "of the messages (50%) have no features"
SPELLINGS: dict[str, Callable[[str], str]] = {
    "without leading zeros": lambda name: name.zfill(8),
    "without blanks around them": lambda name: f" {name}",
    "without quotes around them": lambda name: f'"{name}"',
    "whatever their case": str.upper,
    "without blanks, quotes, case and leading zeros": lambda name: f' "{name.upper()}"',
}


def ids(n: int) -> list[str]:
    return [f"{number:x}f" for number in range(1 << 20, (1 << 20) + n)]


def accepted(folder: Path, names: list[str]) -> AcceptedMessage:
    sender = Sender()
    key = sender.public_key(folder)
    sender.write(folder / "m.parquet", names, np.arange(len(names)) % 11 * 1.0)
    pq.write_table(pa.table({"id": ids(len(names)), "x": np.arange(len(names)) % 7 * 1.0}), folder / "features.parquet")
    return features_party(folder / "home").messages.accept(folder / "m.parquet", VerifyingKey.load(key))


def half(spelling: Callable[[str], str], n: int = 400) -> list[str]:
    """Every second id is spelt otherwise."""
    return [spelling(name) if at % 2 else name for at, name in enumerate(ids(n))]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_likely_reason_is_said(spelling: str, tmp_path: Path) -> None:
    message = accepted(tmp_path, half(SPELLINGS[spelling]))
    found = join([message], feature_table(pq.read_table(tmp_path / "features.parquet"), "id"), limits=WATCHED)
    assert found.counts.unmatched_warning is not None
    assert HALF in found.counts.unmatched_warning
    assert f"About 200 of them would meet ids of features {spelling}:" in found.counts.unmatched_warning


@pytest.mark.parametrize("bucket_bytes", [1 << 20, 500])
def test_a_join_in_pieces_says_the_same(bucket_bytes: int, tmp_path: Path) -> None:
    message = accepted(tmp_path, half(str.upper))
    in_memory = join([message], feature_table(pq.read_table(tmp_path / "features.parquet"), "id"), limits=WATCHED)
    file = FeatureFile.open(tmp_path / "features.parquet", "id")
    with SpilledJoin.open(file, tmp_path / "spill", lambda _w, _s: None, memory_mb=64) as work:
        work.bucket_bytes = bucket_bytes
        work.load_features()
        work.load_messages([message], "auto")
        with pytest.raises(InvalidTable, match="At most 40% may have none"):
            work.write(tmp_path / "refused.parquet", limits=Limits(refuse=0.4))
    assert not (tmp_path / "refused.parquet").exists()
    with SpilledJoin.open(file, tmp_path / "spill", lambda _w, _s: None, memory_mb=64) as work:
        work.bucket_bytes = bucket_bytes
        work.load_features()
        work.load_messages([message], "auto")
        counts = work.write(tmp_path / "out.parquet", limits=WATCHED)
    assert counts == in_memory.counts


def test_a_sample_is_enough_for_many_ids() -> None:
    """The share that is said is within five standard errors of the true one: a false alarm once in 10⁶ runs."""
    n = 12 * SAMPLE
    names = ids(n)
    found = Unmatched.of(
        pa.array([name.zfill(9) if at % 4 == 0 else f"no-{at}" for at, name in enumerate(names)]), pa.array(names)
    )
    spelling, share = found.reason()
    assert spelling == "without leading zeros"
    assert abs(share - 0.25) < 5 * np.sqrt(0.25 * 0.75 / (SAMPLE / 8))


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_likely_reason_is_said_where_no_id_matched(spelling: str, tmp_path: Path) -> None:
    message = accepted(tmp_path, [SPELLINGS[spelling](name) for name in ids(400)])
    with pytest.raises(InvalidTable, match=f"About 100% of them would meet ids of features {spelling}: write ids"):
        join([message], feature_table(pq.read_table(tmp_path / "features.parquet"), "id"))


def test_other_ids_have_no_reason(tmp_path: Path) -> None:
    message = accepted(tmp_path, [name if at % 2 else f"other-{at}" for at, name in enumerate(ids(400))])
    found = join([message], feature_table(pq.read_table(tmp_path / "features.parquet"), "id"), limits=WATCHED)
    assert found.counts.unmatched_warning is not None
    assert found.counts.unmatched_warning.endswith("Check the id column, and how both sides write their ids.")


@pytest.mark.parametrize(("share", "said"), [(0.24, False), (0.26, True)])
def test_only_more_than_the_share_is_said(share: float, said: bool, tmp_path: Path) -> None:
    cut = int(400 * share)
    message = accepted(tmp_path, [f"other-{at}" if at < cut else name for at, name in enumerate(ids(400))])
    table = feature_table(pq.read_table(tmp_path / "features.parquet"), "id")
    assert (join([message], table, limits=WATCHED).counts.unmatched_warning is not None) == said
    assert join([message], table, limits=Limits(warn=0.0)).counts.unmatched_warning is not None


def test_few_ids_are_said_where_another_spelling_lets_them_meet(tmp_path: Path) -> None:
    names = [name.upper() if at < 10 else name for at, name in enumerate(ids(400))]
    message = accepted(tmp_path, names)
    found = join([message], feature_table(pq.read_table(tmp_path / "features.parquet"), "id"), limits=WATCHED)
    assert found.counts.unmatched_warning is not None
    assert "whatever their case" in found.counts.unmatched_warning


def test_examples_that_were_held_out_are_not_missed(tmp_path: Path) -> None:
    message = accepted(tmp_path, ids(400))
    table, held = split(feature_table(pq.read_table(tmp_path / "features.parquet"), "id"), 0.5, "key")
    found = join([message], table, limits=WATCHED)
    assert found.counts.unmatched_warning is None
    assert (found.counts.message_ids_without_features, found.counts.matched) == (0, 400 - held.rows)


def test_commands_say_it_and_refuse_on_request(tmp_path: Path) -> None:
    accepted(tmp_path, half(str.upper))
    shell, asked = Shell(tmp_path), ("--message", "m.parquet", *KEY, *ASK)
    shown = " ".join(shell.run("join", *asked, "--out", "out.parquet").stdout.split())
    assert HALF in shown
    shown = " ".join(shell.run("train", *asked, "--model", "linear", "--out", "model").stdout.split())
    assert "whatever their case" in shown
    card = json.loads((tmp_path / "model" / "card.json").read_text())
    assert card["report"]["unmatched_warning"] in card["notes"]
    assert HALF in (tmp_path / "model" / "card.md").read_text().replace("\\", "")
    for command in ("join", "train"):
        told = shell.refused(command, *asked, "--refuse-unmatched", "0.2", "--out", "refused", code=2)
        assert "At most 20% may have none" in told
        assert not (tmp_path / "refused").exists()
    quiet = shell.json("join", *asked, "--warn-unmatched", "0.9", "--out", "again.parquet")
    assert "whatever their case" in quiet["counts"]["unmatched_warning"], "another spelling is always said"


def test_a_service_says_it_and_refuses_on_request(tmp_path: Path) -> None:
    sender = Sender()
    with running(tmp_path, sender) as api:
        api.accept(message_files(sender, tmp_path / "sent"))
        world = WORLD.table()
        upper = pa.array([name.upper() for name in world["click_id"].to_pylist()])
        table = api.table(pa.concat_tables([world.slice(0, 200), world.set_column(0, "click_id", upper).slice(200)]))
        model = api.trained(table)
        said = api.trainer.get(f"/v1/models/{model}").json()["card"]["report"]["unmatched_warning"]
        assert "About 200 of them would meet ids of features whatever their case" in said
        asked = {"feature_table": table, "messages": ["rel_1"], "model": "linear", "refuse_unmatched": 0.3}
        ended = api.finished(api.trainer.post("/v1/trainings", json=asked).json()["id"])
        assert ended["state"] == "failed"
        assert "At most 30% may have none" in ended["problem"]["detail"]
