"""The sort by id is the bytewise one, equal ids in the order in which they came, however the rows are divided."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from label_dp.errors import Unavailable
from labels_party.labels.by_id import in_memory, sort
from labels_party.labels.by_id import kernels as kernels  # compiled before anything is timed
from labels_party.labels.by_id.in_memory import in_order
from labels_party.labels.by_id.sort import DiskRun, IdSort
from labels_party.labels.digests import kernels as worth
from labels_party.labels.spool import IN_MEMORY

# zeros at the end, more than eight bytes alike, ids that begin with another, and many of the same
ENDS = st.text(alphabet="ab\x00é𐍈", min_size=0, max_size=11)
IDS = st.lists(
    st.one_of(ENDS.map(lambda e: "p" + e), ENDS.map(lambda e: "a long beginning of " + e), st.just("the same")),
    min_size=1,
    max_size=80,
)


@pytest.fixture(params=["compared", "compiled"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    found = str(request.param)
    monkeypatch.setattr(type(worth), "worth", lambda self, rows: found == "compiled")
    return found


@pytest.fixture
def divided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of a few rows, blocks of seven."""
    monkeypatch.setattr(in_memory, "PART", 2)
    monkeypatch.setattr(in_memory, "MOST", 5)
    monkeypatch.setattr(in_memory, "SAMPLED", 2)
    monkeypatch.setattr(sort, "BLOCK_ROWS", 7)


def expected(ids: list[str]) -> list[tuple[str, int]]:
    return sorted(((i, row) for row, i in enumerate(ids)), key=lambda pair: (pair[0].encode(), pair[1]))


def sorted_rows(
    ids: list[str], folder: Path, memory: int, chunk: int = 3, *, started: bool = False
) -> list[tuple[str, int]]:
    rows: list[tuple[str, int]] = []
    array, numbers = pa.array(ids, pa.string()), np.arange(len(ids), dtype=np.uint32)
    with IdSort(folder, memory) as found:
        for start in range(0, len(ids), chunk):
            found.add(array.slice(start, chunk), numbers[start : start + chunk])
        if started:
            found.start()
        seen: set[str] = set()
        for block in found.blocks():
            here = block.ids().to_pylist()
            assert not seen & set(here), "an id is in two blocks"
            seen |= set(here)
            rows += zip(here, block.labels.tolist(), strict=True)
    return rows


@pytest.mark.usefixtures("way", "divided")
@pytest.mark.parametrize("memory", [1 << 30, 200, 0])
def test_rows_come_out_as_a_plain_sort_gives_them(memory: int, tmp_path: Path) -> None:
    @settings(max_examples=60, deadline=None)
    @given(IDS, st.booleans())
    def check(ids: list[str], started: bool) -> None:
        assert sorted_rows(ids, tmp_path, memory, started=started) == expected(ids)

    check()


@pytest.mark.usefixtures("way", "divided")
@pytest.mark.parametrize("memory", [1 << 30, 1 << 15])
def test_ties_of_many_rows_and_one_id_that_is_unlike_all_others(memory: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    ids = [
        f"campaign-of-the-year-{rng.integers(3)}-{rng.integers(1 << 40):012x}-{rng.integers(4)}" for _ in range(6000)
    ]
    ids += ["click\x00" + "\x00" * int(rng.integers(12)) for _ in range(300)] + ["zz"]
    rng.shuffle(ids)
    assert sorted_rows(ids, tmp_path, memory, chunk=1000) == expected(ids)


def test_a_sort_that_begins_ahead_tells_what_went_wrong_and_may_be_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids, labels = pa.array(["b", "a"]), np.arange(2, dtype=np.uint32)
    with IdSort(tmp_path, 1 << 20) as left:
        left.add(ids, labels)
        left.start()
    assert left._begun is not None
    with pytest.raises(StopIteration):
        next(left._begun[0])
    with IdSort(tmp_path, 1 << 20) as empty:
        empty.start()
        assert list(empty.blocks()) == []

    def broken(_block: object) -> None:
        raise MemoryError

    monkeypatch.setattr(in_memory, "_compared", broken)
    with IdSort(tmp_path, 1 << 20) as found:
        found.add(ids, labels)
        found.start()
        with pytest.raises(MemoryError):
            next(found.blocks())


@pytest.mark.parametrize("texts", [pa.string(), pa.large_string()])
def test_a_slice_is_its_own_rows(texts: pa.DataType, tmp_path: Path) -> None:
    ids = pa.array(["x" * 9, "b", "a", "c"], texts).slice(1, 2)
    with IdSort(tmp_path, 1 << 20) as found:
        found.add(ids, np.arange(2, dtype=np.uint32))
        (block,) = found.blocks()
    assert block.ids().to_pylist() == ["a", "b"]
    assert block.labels.tolist() == [1, 0]


def test_a_run_on_disk_has_no_name_and_shows_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worth, "worth", lambda _rows: False)  # one block
    ids = [f"click-{i:08d}" for i in range(1 << 19)]
    (block,) = in_order([sort.Block.of([pa.array(ids)], [np.full(len(ids), 77, np.uint32)])])
    run = DiskRun([block], tmp_path)
    assert block.size > IN_MEMORY
    assert list(tmp_path.iterdir()) == []
    stored = Path(f"/proc/self/fd/{run._spool._file}").read_bytes()
    assert len(stored) > block.size
    assert b"click-0" not in stored
    assert np.array([77, 77, 77], np.uint32).tobytes() not in stored
    (back,) = run.blocks()
    assert back.ids().equals(pa.array(ids))
    assert set(back.labels.tolist()) == {77}
    run.close()


def test_a_disk_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("labels_party.labels.spool.Spool.add", full)
    monkeypatch.setattr(sort, "BLOCK_ROWS", 1)
    with IdSort(tmp_path, 0) as found, pytest.raises(Unavailable, match="No space left"):
        found.add(pa.array(["a"]), np.zeros(1, np.uint32))
