"""Where a message is cut: every row once and in order, no file larger than the limit, from ids alone."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from label_dp.documents.bundle import verify
from label_dp.documents.rows import largest_encoding, read_message
from labels_party.labels import vault
from labels_party.message import parts
from labels_party.message.parts import FILE_BYTES, MOST_FILES, Part, bounds, cut, pieces
from tests.support.labels import LabelsParty, label_table

ROWS = 1 << 17


def test_every_row_is_in_one_file_and_no_file_is_too_large() -> None:
    rng = random.Random(1)
    for _ in range(200):
        groups = [(rows := rng.randint(1, 3000), rows * rng.randint(5, 516)) for _ in range(rng.randint(1, 30))]
        most_rows, most_bytes = rng.randint(1, 5000), (1 << 21) + rng.randint(0, 1 << 20)
        whole = list(pieces(groups, most_rows, most_bytes))
        found = list(cut(whole, most_rows, most_bytes))
        assert sum(part.rows for part in found) == sum(rows for rows, _ in groups)
        assert all(0 < part.rows <= most_rows and part.largest <= most_bytes for part in found)
        assert [part.first for part in found[1:]] == [part.last + 1 for part in found[:-1]]
        # no two that follow each other would have been one: each is full
        for one, two in itertools.pairwise(found):
            first = whole[two.first]
            grown = Part(0, 0, one.rows + first[0], one.id_bytes + first[1])
            assert grown.rows > most_rows or grown.largest > most_bytes


@pytest.mark.parametrize(
    ("rows", "id_bytes", "rows_per_file", "files"),
    [
        (1_000_000, 24, 20_000_000, 1),
        (20_000_000, 24, 20_000_000, 1),
        (40_000_000, 40, 20_000_000, 3),
        (1_000_000_000, 512, 20_000_000, 545),
        (10_000_000_000, 20, 20_000_000, 503),
        (100_000_000_000, 512, 20_000_000, 1001),
    ],
)
def test_how_many_files_a_message_has(rows: int, id_bytes: int, rows_per_file: int, files: int) -> None:
    """Ids of one length, in groups as the vault has them."""
    full, rest = divmod(rows, ROWS)
    groups = itertools.chain(itertools.repeat((ROWS, ROWS * id_bytes), full), [(rest, rest * id_bytes)] if rest else [])
    limits = bounds(rows, rows * id_bytes, rows_per_file)
    found = list(cut(groups, *limits))
    assert abs(len(found) - files) <= files // 50
    assert len(found) <= MOST_FILES
    if rows <= 10_000_000_000:
        assert max(part.largest for part in found) <= FILE_BYTES == 1 << 30


def test_a_file_of_the_message_stays_below_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long ids come last in the order, so that files of equally many rows would not be equally large."""
    monkeypatch.setattr(vault, "ROW_GROUP", 256)
    monkeypatch.setattr(parts, "FILE_BYTES", limit := largest_encoding(1000, 0, 1000) + 40_000)
    labels = label_table(4000)
    ids = [f"a{i:06d}" if i < 3000 else f"b{i:06d}-{i:0400d}" for i in range(4000)]
    labels = labels.set_column(0, "example_id", [ids])
    with LabelsParty(tmp_path / "home") as party:
        release = party.release(party.sealed_batch(labels))
        found = verify(party.bundle(release).path, party.services.key.public, "features-party")
        rows = [entry.rows for entry in found.manifest.message_files]
        assert len(rows) > 5
        assert rows[0] > 3 * rows[-2]
        assert all(path.stat().st_size <= limit for path in found.paths)
        assert [pq.read_metadata(path).num_rows for path in found.paths] == rows
        assert read_message(list(found.paths), found.manifest)["example_id"].to_pylist() == ids
