"""Ids of a message rise across its files too: one that stands in two of them would be joined twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from label_dp.documents.rows import read_message, write_message
from label_dp.errors import MalformedManifest
from tests.support.messages import Sender, one_bit


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
