"""A copy of a file, however the kernel makes it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from label_dp.store.folders import copy_file

DATA = os.urandom(3 << 20)


@pytest.mark.parametrize("after", [None, 0, 1 << 20])
def test_all_bytes_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int | None) -> None:
    """`after`: bytes after which the kernel says that it cannot."""
    (tmp_path / "a").write_bytes(DATA)
    real, left = os.copy_file_range, after

    def unwilling(source: int, target: int, count: int) -> int:
        nonlocal left
        if left == 0:
            raise OSError(errno.EXDEV, "two file systems")
        assert left is not None
        copied = real(source, target, min(count, left))
        left -= copied
        return copied

    if after is not None:
        monkeypatch.setattr(os, "copy_file_range", unwilling)
    copy_file(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == DATA
    (tmp_path / "a").write_bytes(b"changed")
    assert (tmp_path / "b").read_bytes() == DATA
    with pytest.raises(FileExistsError):
        copy_file(tmp_path / "a", tmp_path / "b")
