"""A file while it comes: what is there counts once, what a disk takes in pieces too, and a wrong one is forgotten."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from label_dp.documents.arriving import Arriving
from label_dp.documents.manifest import FileEntry
from label_dp.errors import DigestMismatch

DATA = bytes(range(256)) * 5000  # more than one piece of hashing
ENTRY = FileEntry(role="message", name="f", bytes=len(DATA), rows=10_000, sha256=hashlib.sha256(DATA).hexdigest())


@pytest.mark.parametrize("there", [0, 1, 1 << 20, len(DATA) - 1, len(DATA)])
def test_what_is_there_is_taken_up(tmp_path: Path, there: int) -> None:
    (tmp_path / "f").write_bytes(DATA[:there])
    with Arriving(tmp_path / "f", ENTRY) as part:
        assert (part.have, part.missing, part.resumed) == (there, len(DATA) - there, there > 0)
        part.write(DATA[there:])
        assert part.whole
        part.finish()
    assert (tmp_path / "f").read_bytes() == DATA


@pytest.mark.parametrize("wrong", [DATA[:-1], DATA[:-1] + b"x", b""])
def test_a_wrong_one_is_refused_and_forgotten(tmp_path: Path, wrong: bytes) -> None:
    with Arriving(tmp_path / "f", ENTRY) as part:
        part.write(wrong)
        assert not part.whole
        with pytest.raises(DigestMismatch):
            part.finish()
        assert (part.have, (tmp_path / "f").stat().st_size) == (0, 0)


def test_a_disk_may_take_it_in_pieces(tmp_path: Path) -> None:
    with Arriving(tmp_path / "f", ENTRY) as part:
        file: Any = part._file

        class Short:
            def write(self, data: memoryview) -> int:
                return int(file.write(data[:70_001]))

        part._file = Short()  # type: ignore[assignment]  # all that writing needs
        part.write(DATA)
        part._file = file
        part.finish()
    assert (tmp_path / "f").read_bytes() == DATA
