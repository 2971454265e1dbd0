"""Ids of a message rise across its files too: one that stands in two of them would be joined twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from label_dp.documents.rows import read_message, write_message
from label_dp.errors import MalformedManifest
from tests.support.messages import Sender, one_bit, rr


@pytest.mark.parametrize(
    ("following", "taken"), [(["c", "d"], True), (["b", "z"], False), (["a", "z"], False), (["A", "z"], False)]
)
def test_the_second_file_begins_after_the_last_id_of_the_first(
    following: list[str], taken: bool, tmp_path: Path
) -> None:
    manifest = Sender().write(tmp_path / "message", ["a", "b", "c", "d"], np.arange(4.0), parts=2)
    first, second = (tmp_path / "message" / entry.name for entry in manifest.message_files)
    write_message(second, [(pa.array(following), np.zeros(2, np.int64))], one_bit())
    if taken:
        assert read_message([first, second], manifest)["example_id"].to_pylist() == ["a", "b", *following]
        return
    with pytest.raises(MalformedManifest, match="not sorted or not unique"):
        read_message([first, second], manifest)


def test_the_sign_of_a_zero_carries_no_bit(tmp_path: Path) -> None:
    path, ids = tmp_path / "m.parquet", [f"{i:02d}" for i in range(40)]
    manifest = Sender().write(path, ids, np.zeros(40), rr("-5:5", cuts=(5, 6)))
    table = read_message([path], manifest)
    labels = table["label"].to_numpy().copy()
    assert 0.0 in labels
    labels[labels == 0.0] *= -1
    place = table.schema.get_field_index("label")
    signed = table.set_column(place, table.schema.field("label"), pa.array(labels))
    pq.write_table(signed, path, compression="zstd", use_dictionary=["bin", "label"], write_statistics=False)
    with pytest.raises(MalformedManifest, match="not the values of its bins"):
        read_message([path], manifest)
