"""A run that was merged on disk: a vault takes the file, and copies what is not one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from label_dp.store.objects import folder
from label_dp.store.objects.folder import FolderObjects
from labels_party.labels.runs import Run
from labels_party.labels.upload_runs import spilled
from labels_party.labels.vault import LabelVault

PIECES: list[Run] = [
    (np.array([5, 1], np.uint64), np.array([2, 3], np.uint64)),
    (np.array([9], np.uint64), np.array([1 << 63], np.uint64)),
]


def vault_below(root: Path) -> LabelVault:
    return LabelVault(FolderObjects(root), lambda _: bytes(32))


def told(run: Run) -> list[list[int]]:
    return [half.tolist() for half in run]


def test_pieces_come_back_in_their_order(tmp_path: Path) -> None:
    assert told(spilled(iter(PIECES), tmp_path, 3)) == [[5, 1, 9], [2, 3, 1 << 63]]
    assert told(spilled(iter(PIECES), tmp_path, 7)) == [[5, 1, 9], [2, 3, 1 << 63]]  # some were left out
    assert told(spilled([], tmp_path, 7)) == [[], []]


def test_a_vault_takes_the_file_once_and_copies_from_then_on(tmp_path: Path) -> None:
    (spill := tmp_path / "spill").mkdir()
    run, vault = spilled(iter(PIECES), spill, 3), vault_below(tmp_path / "vault")
    inode = next(spill.iterdir()).stat().st_ino
    vault.put_run("bat_1/one.run", *run)
    vault.put_run("bat_1/two.run", *run)
    assert list(spill.iterdir()) == []
    assert (vault.objects.room / "bat_1/one.run").stat().st_ino == inode
    vault.delete("bat_1/one.run")
    assert told(vault.run("bat_1/two.run")) == told(run) == [[5, 1, 9], [2, 3, 1 << 63]]


def test_a_disk_that_fails_after_the_file_was_taken_harms_no_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is mapped from the very file: to write to its name would take away what is written."""
    (spill := tmp_path / "spill").mkdir()
    run, vault, failures = spilled(iter(PIECES), spill, 3), vault_below(tmp_path / "vault"), [OSError("disk")]
    whole = folder.fsync_folder

    def failing(path: Path) -> None:
        if failures:
            raise failures.pop()
        whole(path)

    monkeypatch.setattr(folder, "fsync_folder", failing)
    vault.put_run("bat_1/one.run", *run)
    assert not failures
    assert told(vault.run("bat_1/one.run")) == told(run) == [[5, 1, 9], [2, 3, 1 << 63]]


def test_a_file_that_holds_more_than_the_run_is_copied(tmp_path: Path) -> None:
    (spill := tmp_path / "spill").mkdir()
    vault = vault_below(tmp_path / "vault")
    parts = spilled(iter(PIECES), spill, 4), spilled(iter(PIECES), spill, 3)
    runs = [parts[0], (parts[1][0][:2], parts[1][1][:2]), (parts[0][0], parts[1][1]), (parts[1][1], parts[1][0])]
    for number, run in enumerate(runs):
        vault.put_run(f"bat_1/{number}.run", *run)
        assert told(vault.run(f"bat_1/{number}.run")) == told(run)
    assert len(list(spill.iterdir())) == 2
