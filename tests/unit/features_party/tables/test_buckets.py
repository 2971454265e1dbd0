"""Ids spread over files: nothing lost, the same id in the same file, files of about one size whatever the ids."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from features_party.tables.buckets import Buckets, IdHash
from label_dp.columnar.tables import MAX_ID_BYTES

ROWS = 1 << 14


@pytest.mark.parametrize(
    "made",
    [
        lambda i: str(i),
        lambda i: f"click-{i:012d}",
        lambda i: f"{i * 65536:016x}",
        lambda i: "é" * (i % 7) + str(i),
        lambda i: "x" * (MAX_ID_BYTES - 6) + f"{i:06d}",
        lambda i: f"{i:06d}" + "x" * (MAX_ID_BYTES - 6),
    ],
)
def test_buckets_are_alike_for_regular_ids(made: Callable[[int], str]) -> None:
    found = IdHash.fresh().of(pa.array([made(i) for i in range(ROWS)]), 4)
    counts = np.bincount(found, minlength=16)
    assert len(counts) == 16
    # independent draws leave 32 around a mean of 1,024; 640 is ten such standard deviations, and half a bucket more
    assert abs(counts - ROWS // 16).max() < 640


def test_the_hash_is_of_the_id_alone() -> None:
    hashed, ids = IdHash.fresh(), [f"{'ab' * (i % 9)}{i}" for i in range(500)]
    whole = hashed.of(pa.array(ids), 12)
    assert np.array_equal(hashed.of(pa.array(ids, pa.large_string()), 12), whole)
    assert np.array_equal(hashed.of(pa.array(ids).slice(77, 100), 12), whole[77:177])
    assert np.array_equal(hashed.of(pa.array(ids[::-1]), 12), whole[::-1])
    assert not np.array_equal(IdHash.fresh().of(pa.array(ids), 12), whole)  # another join, another key
    assert np.array_equal(hashed.of(pa.array(ids), 0), np.zeros(500))


@pytest.mark.parametrize("bits", [0, 3])
def test_every_row_is_read_once_and_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bits: int) -> None:
    monkeypatch.setattr("features_party.tables.buckets.ADD_ROWS", 100)
    hashed, ids = IdHash.fresh(), [f"id{i % 900}" for i in range(1000)]
    buckets = Buckets(tmp_path, "b", ("row", "twice"), hashed, bits)
    for start in range(0, 1000, 70):
        part = ids[start : start + 70]
        at = np.arange(start, start + len(part))
        buckets.add(pa.array(part), at, 2 * at)
    buckets.flush()
    seen: dict[int, str] = {}
    for number in range(1 << bits):
        found, (row, twice) = buckets.read(number)
        assert np.all(np.diff(row) > 0)
        assert np.array_equal(twice, 2 * row)
        assert set(hashed.of(found, bits).tolist()) <= {number}
        finer = buckets.apart(found, number, bits + 2)
        assert np.array_equal(finer + 4 * number, hashed.of(found, bits + 2))
        assert not seen.keys() & set(row.tolist())
        seen |= dict(zip(row.tolist(), found.to_pylist(), strict=True))
    assert seen == dict(enumerate(ids))


def test_a_bucket_without_rows(tmp_path: Path) -> None:
    ids, (row,) = Buckets(tmp_path, "b", ("row",), IdHash.fresh(), 2).read(3)
    assert (len(ids), ids.type, len(row)) == (0, pa.large_string(), 0)
