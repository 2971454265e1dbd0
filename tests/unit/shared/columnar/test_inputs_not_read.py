"""Sound files that are not read are told from damaged ones, at once: pipes, and files of very many parts."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from features_party.tables.feature_files import FeatureFile, first_column
from label_dp.columnar.claims import Claims
from label_dp.columnar.tables import read_table
from label_dp.errors import InvalidFile
from labels_party.companions.kinds.feature_store import FeatureStore
from labels_party.labels.label_file import LabelFile

READERS: list[Callable[[Path], Any]] = [
    read_table,
    lambda path: FeatureFile.open(path, "id"),
    first_column,
    lambda path: LabelFile.open(path, ["id"]),
    lambda path: object.__new__(FeatureStore).read_file(path),  # without a store
]


def within(seconds: float, work: Callable[[], object]) -> list[Exception]:
    """What `work` raised; fails where it waits."""
    raised: list[Exception] = []

    def run() -> None:
        try:
            work()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "the reader waits"
    return raised


@pytest.mark.parametrize("reader", READERS)
def test_a_pipe_is_told_at_once(tmp_path: Path, reader: Callable[[Path], Any]) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null")):
        (error,) = within(20.0, lambda path=path: reader(path))
        assert isinstance(error, InvalidFile)
        assert error.detail == f"'{path}' is a pipe or a device, which cannot be read twice; save it as a file first."


@pytest.mark.parametrize("reader", READERS)
def test_very_many_parts_are_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: Callable[[Path], Any]
) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"id": [str(i) for i in range(90)]}), path, row_group_size=1)
    monkeypatch.setattr("label_dp.columnar.claims.PAGES", 40)
    monkeypatch.setattr("label_dp.columnar.claims.PAGES_PER_BYTE", 0)
    monkeypatch.setattr(Claims, "pages", None)  # told from the footer, without a look at a page
    with pytest.raises(InvalidFile) as caught:
        reader(path)
    assert caught.value.detail == (
        f"'{path}' cannot be read: it has more row groups or pages than a file of its size; write it with fewer, "
        "larger ones."
    )


def test_a_footer_that_is_too_large_is_no_damage_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"id": ["a"]}), path)
    monkeypatch.setattr("label_dp.columnar.claims.MOST_FOOTER", 100)
    with pytest.raises(InvalidFile, match="fewer, larger ones"):
        read_table(path)


def test_control_a_damaged_file_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"id": ["a"]}), path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InvalidFile, match=r"not a complete|truncated or damaged"):
        read_table(path)
