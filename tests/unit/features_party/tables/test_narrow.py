"""A training sees the same numbers and places of a narrowed table, in fewer bytes."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from features_party.tables.feature_tables import narrowed, read_features
from features_party.training.encoding import FeatureSchema

ROWS = 3000


def features() -> pa.Table:
    rng = np.random.default_rng(0)
    words = [None if i % 11 == 0 else f"word {i}" for i in rng.integers(0, 90, ROWS)]
    return pa.table(
        {
            "id": [f"c{i}" for i in range(ROWS)],
            "wide": np.append(rng.normal(size=ROWS - 3), [np.nan, np.inf, 1e300]),
            "gaps": pa.array([None if i % 7 == 0 else i / 3 for i in range(ROWS)]),
            "large": pa.array((1 << 60) + rng.integers(0, 1 << 40, ROWS)),
            "unsigned": pa.array(rng.integers(0, 1 << 63, ROWS).astype(np.uint64) * np.uint64(2)),
            "code": pa.array((1 << 55) + rng.integers(0, 5, ROWS)),  # these are one number as floats
            "text": pa.array(words),
            "long": pa.array(words, pa.large_string()),
            "own": [f"only here {i}" for i in range(ROWS)],
            "given": pa.array(words).dictionary_encode(),
            "flag": [i % 3 == 0 for i in range(ROWS)],
            "small": pa.array(rng.integers(0, 99, ROWS).astype(np.int16)),
            "money": pa.array([Decimal(int(i)) / 100 for i in range(ROWS)]),
            "day": [dt.date(2026, 1, 1) + dt.timedelta(days=int(i)) for i in rng.integers(0, 90, ROWS)],
        }
    )


def test_the_encoding_is_the_same(tmp_path: Path) -> None:
    path, options = tmp_path / "f.parquet", {"text": ("code",)}
    pq.write_table(features(), path, row_group_size=700)  # pieces with texts of their own
    whole, narrow = read_features(path, "id", **options), read_features(path, "id", narrow=True, **options)
    assert narrow.ids.equals(whole.ids)
    for rows in (slice(None), np.random.default_rng(1).permutation(ROWS)[:500]):
        tables = [t.features if isinstance(rows, slice) else t.features.take(rows) for t in (whole, narrow)]
        schemas = [FeatureSchema.learn(table, categorical=["code"]) for table in tables]
        assert schemas[0] == schemas[1]
        with np.errstate(over="ignore"):
            encoded = [schemas[0].encode(table) for table in tables]
        assert encoded[0].numbers.tobytes() == encoded[1].numbers.tobytes()
        assert np.array_equal(encoded[0].codes, encoded[1].codes)


def test_it_is_smaller() -> None:
    numbers = pa.table({f"f{i}": np.random.default_rng(i).normal(size=ROWS) for i in range(10)})
    assert narrowed(numbers, ()).nbytes < 0.6 * numbers.nbytes
    text = pa.table({"text": [f"some value {i % 20}" for i in range(ROWS)]})
    assert narrowed(text, ()).nbytes < text.nbytes / 3
    assert narrowed(text, ("text",)).equals(text)
