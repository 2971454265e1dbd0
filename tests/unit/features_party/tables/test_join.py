"""Feature tables and their join with messages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from features_party.tables.feature_tables import read_features
from features_party.tables.join import join, list_unmatched
from features_party.tables.output import write_table
from label_dp.documents.signing import VerifyingKey
from label_dp.errors import InvalidFile, InvalidInput, InvalidRows, InvalidTable
from tests.support.messages import Sender, features_party, one_bit, rr, world


@pytest.fixture
def sender() -> Sender:
    return Sender()


def accepted(sender: Sender, folder: Path, **options):  # type: ignore[no-untyped-def]  # a test shorthand
    path = folder / f"{options.get('release', 'rel_1')}.parquet"
    sender.write(path, **options)
    services = features_party(folder / "home")
    return services.messages.accept(path, VerifyingKey.load(sender.public_key(folder)))


def features(folder: Path, table: pa.Table) -> Path:
    path = folder / "features.parquet"
    pq.write_table(table, path)
    return path


def test_counts_and_values(sender: Sender, tmp_path: Path) -> None:
    labels = np.array([0.0, 10.0, 5.0])
    message = accepted(sender, tmp_path, ids=["b", "a", "c"], labels=labels)
    path = features(tmp_path, pa.table({"id": ["x", "c", "a", "y"], "f": [0.0, 1.0, 2.0, 3.0]}))
    joined = join([message], read_features(path, "id"))
    assert joined.counts.model_dump() == {
        "messages": 1,
        "message_rows": 3,
        "feature_rows": 4,
        "matched": 2,
        "message_ids_without_features": 1,
        "features_without_message": 2,
        "ids_in_several_messages": 0,
        "unmatched_warning": None,
    }
    table = joined.labelled(joined.table.whole).to_pydict()
    assert table["id"] == ["c", "a"]  # as in the feature table
    assert table["f"] == [1.0, 2.0]
    assert table["release"] == ["rel_1", "rel_1"]
    bins = dict(zip(message.rows()["example_id"].to_pylist(), message.rows()["bin"].to_pylist(), strict=True))
    outputs = one_bit().outputs
    assert table["raw_label"] == [outputs[bins["c"]], outputs[bins["a"]]]
    assert set(table["noise_variance"]) == {joined.corrections[0].noise_variance}
    list_unmatched(joined, tmp_path / "unmatched.csv")
    text = (tmp_path / "unmatched.csv").read_text()
    assert '"b","features"' in text
    assert '"x","messages"' in text


def test_whole_number_ids_meet_their_decimal_spelling(sender: Sender, tmp_path: Path) -> None:
    message = accepted(sender, tmp_path, ids=["1", "20"], labels=np.array([1.0, 2.0]))
    path = features(tmp_path, pa.table({"id": pa.array([20, 1, 3], pa.int32()), "f": [1, 2, 3]}))
    assert join([message], read_features(path, "id")).counts.matched == 2


def test_an_id_in_two_messages_keeps_both_rows(sender: Sender, tmp_path: Path) -> None:
    first = accepted(sender, tmp_path, ids=["a", "b"], labels=np.array([0.0, 9.0]))
    second = accepted(
        sender, tmp_path, ids=["b", "c"], labels=np.array([9.0, 9.0]), channel=rr(), release="rel_2", batch="bat_2"
    )
    path = features(tmp_path, pa.table({"id": ["a", "b", "c"], "f": [1, 2, 3]}))
    joined = join([first, second], read_features(path, "id"))
    assert joined.counts.matched == 4
    assert joined.counts.ids_in_several_messages == 1
    assert joined.labelled(joined.table.whole)["id"].to_pylist() == ["a", "b", "b", "c"]
    # each message is corrected by its own channel
    assert len(set(joined.noise_variance.tolist())) == 2


def test_nothing_in_common_is_refused(sender: Sender, tmp_path: Path) -> None:
    message = accepted(sender, tmp_path, ids=["a"], labels=np.array([0.0]))
    path = features(tmp_path, pa.table({"id": ["A"], "f": [1]}))
    with pytest.raises(InvalidTable, match="None of the 1 message rows"):
        join([message], read_features(path, "id"))


def test_a_column_the_join_adds_is_refused(sender: Sender, tmp_path: Path) -> None:
    message = accepted(sender, tmp_path, ids=["a"], labels=np.array([0.0]))
    table = read_features(features(tmp_path, pa.table({"id": ["a"], "raw_label": [1]})), "id")
    with pytest.raises(InvalidTable, match="raw_label"):
        join([message], table).labelled(table.whole)


# --- feature tables: every bad input -----------------------------------------------------------------------


def test_a_missing_id_column_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(InvalidTable, match=r"no column 'id'.*'a', 'b'"):
        read_features(features(tmp_path, pa.table({"a": [1], "b": [2]})), "id")


def test_duplicate_ids_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRows) as refusal:
        read_features(features(tmp_path, pa.table({"id": ["a", "b", "a"], "f": [1, 2, 3]})), "id")
    assert refusal.value.problems[0].row == 2


@pytest.mark.parametrize("ids", [["a", None], ["a", ""], ["a", "x" * 513]])
def test_bad_ids_are_refused(tmp_path: Path, ids: list[str | None]) -> None:
    with pytest.raises(InvalidRows):
        read_features(features(tmp_path, pa.table({"id": ids, "f": [1, 2]})), "id")


def test_float_ids_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidTable, match="text or whole numbers"):
        read_features(features(tmp_path, pa.table({"id": [1.0], "f": [1]})), "id")


@pytest.mark.parametrize("data", [b"", b"PAR1", b"\x00\xff\xfe garbage", b"id,f\n1,2,3\n"])
def test_unreadable_files_are_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "features"
    path.write_bytes(data)
    with pytest.raises((InvalidFile, InvalidTable)):
        read_features(path, "id")


def test_a_truncated_parquet_file_is_refused(tmp_path: Path) -> None:
    path = features(tmp_path, world(200).table("id"))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InvalidFile):
        read_features(path, "id")


def test_a_header_without_rows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "features.csv"
    path.write_text("id,f\n")
    with pytest.raises(InvalidTable, match="no rows"):
        read_features(path, "id")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile):
        read_features(tmp_path / "nothing", "id")


def test_csv_with_a_byte_order_mark_and_leading_zeros(tmp_path: Path) -> None:
    path = tmp_path / "features.csv"
    path.write_bytes(b"\xef\xbb\xbfid,f,code\n001,1.5,07\n002,,7\n")
    table = read_features(path, "id", text=["code"])
    assert table.ids.to_pylist() == ["001", "002"]
    assert table.features["f"].to_pylist() == [1.5, None]
    assert table.features["code"].to_pylist() == ["07", "7"]


def test_writing_leaves_no_half_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile):
        write_table(pa.table({"a": [[1]]}), tmp_path / "nested.csv")
    with pytest.raises(InvalidInput, match="make it first"):
        write_table(pa.table({"a": [1]}), tmp_path / "no-folder" / "t.parquet")
    assert list(tmp_path.iterdir()) == []
