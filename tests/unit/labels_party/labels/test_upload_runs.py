"""The digests of one upload, sorted in parts: the same set and the same repetitions as sorting them at once."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labels_party.labels import upload_runs
from labels_party.labels.runs import Run, merge, sort_run
from labels_party.labels.upload_runs import UploadRuns, merged_pieces


def digests(numbers: Any) -> tuple[np.ndarray, np.ndarray]:
    """Spread like real ones: equal numbers, equal digests."""
    spread = np.array(numbers, np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return spread ^ np.uint64(7), spread


def fill(numbers: Any, out: Run) -> None:
    out[0][:], out[1][:] = digests(numbers)


@settings(max_examples=150, deadline=None)
@given(
    chunks=st.lists(st.lists(st.integers(0, 60), max_size=12), min_size=1, max_size=12),
    kept=st.sampled_from([1, 20, 1 << 22]),
)
def test_parts_find_what_sorting_at_once_finds(
    chunks: list[list[int]], kept: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upload_runs, "BUFFER", 8)
        patch.setattr(upload_runs, "KEPT", kept)
        _check(chunks, tmp_path_factory.mktemp("spill"))


def _check(chunks: list[list[int]], spill: Path) -> None:
    again_rows: list[int] = []
    all_numbers = [n for chunk in chunks for n in chunk]
    with closing(UploadRuns(spill, fill)) as runs:
        start = 0
        for chunk in chunks:
            runs.add(np.array(chunk, np.uint64), start)
            start += len(chunk)
            if runs.full:
                if runs.begun:
                    run, rows, again = runs.part()
                    again_rows += again.tolist()
                    assert [digests([all_numbers[r]])[1][0] for r in rows] == run[1].tolist()
                    runs.make_room()
                runs.begin()
        while runs.begun:
            again_rows += runs.part()[2].tolist()
        again_rows += runs.part()[2].tolist()
        run = runs.finish()
        distinct = sort_run(*digests(sorted(set(all_numbers))))[0]
        assert len(again_rows) + runs.again == len(all_numbers) - len(set(all_numbers))
        if not runs.again:
            assert run[1].tolist() == distinct[1].tolist()
            assert run[0].tolist() == distinct[0].tolist()
        else:
            assert set(runs.repeated[1].tolist()) <= set(distinct[1].tolist())
        for row in again_rows:
            assert all_numbers[row] in all_numbers[:row]
    assert list(spill.iterdir()) == []


@given(st.lists(st.lists(st.integers(0, 10**6), max_size=40), min_size=1, max_size=5), st.integers(1, 50))
def test_merged_pieces_are_the_merge(parts: list[list[int]], most: int) -> None:
    runs = [sort_run(*digests(part))[0] for part in parts]
    pieces = list(merged_pieces(runs, most))
    whole = merge(runs)
    for half in (0, 1):
        joined = np.concatenate([p[half] for p in pieces]) if pieces else np.zeros(0, np.uint64)
        assert joined.tolist() == whole[half].tolist()


def test_long_ids_do_not_wait_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload_runs, "BUFFER_BYTES", 100)
    with closing(UploadRuns(tmp_path, fill)) as runs:
        runs.add(np.arange(12, dtype=np.uint64), 0)
        assert not runs.full
        runs.add(np.arange(12, 14, dtype=np.uint64), 12)
        assert runs.full
        runs.begin()
        assert not runs.full
        assert runs.part()[1].tolist() == np.argsort(digests(np.arange(14))[1]).tolist()
