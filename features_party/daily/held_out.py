"""Held-out examples, on which no model of a folder is trained: chosen by the id and the folder's key, the same every
day."""

from __future__ import annotations

import glob
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from features_party.files.jobs import read_for_training
from features_party.settings import Settings
from features_party.tables.buckets import IdHash
from features_party.tables.feature_tables import FeatureTable, feature_table
from features_party.training.draws import mixed
from label_dp.errors import InvalidFile, InvalidTable

if TYPE_CHECKING:
    import pyarrow as pa


def read_all(settings: Settings, base: Path, patterns: Iterable[str], id_column: str, text: list[str]) -> FeatureTable:
    """Read the rows of all files together. Raises InvalidFile (a pattern without a match), InvalidTable (incompatible
    columns), InvalidRows (a repeated id), TooLarge."""
    import pyarrow as pa

    tables = [
        read_for_training(settings, path, id_column, tuple(text), narrow=False).whole for path in _paths(base, patterns)
    ]
    try:
        whole = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException:
        types: dict[str, set[str]] = {}
        for table in tables:
            for field in table.schema:
                types.setdefault(field.name, set()).add(str(field.type))
        clashes = "; ".join(f"'{name}' ({', '.join(sorted(kinds))})" for name, kinds in types.items() if len(kinds) > 1)
        raise InvalidTable(f"The feature files have columns of types that do not go together: {clashes}.") from None
    return feature_table(whole, id_column)


def _paths(base: Path, patterns: Iterable[str]) -> list[Path]:
    matches: dict[Path, None] = {}
    for pattern in patterns:
        path = base / pattern
        paths = [path] if path.exists() else [Path(one) for one in sorted(glob.glob(str(path)))]  # noqa: PTH207 - the pattern may be absolute
        if not paths:
            raise InvalidFile(f"There is no feature file '{path}'.")
        matches |= dict.fromkeys(paths)
    return list(matches)


def split(table: FeatureTable, share: float, key: str) -> tuple[FeatureTable, FeatureTable]:
    """Split into (training, held out). Raises InvalidTable if one of them would be empty."""
    draws = mixed(IdHash.keyed(key.encode()).draws(table.ids), "held out of every day")
    outside = draws < np.uint64(share * 2.0**64)
    if outside.all() or not outside.any():
        raise InvalidTable(f"{table.rows} rows are too few to hold some out; give more, or hold a larger share out.")
    return _part(table, ~outside), _part(table, outside)


def _part(table: FeatureTable, rows: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> FeatureTable:
    import pyarrow as pa

    mask: pa.Array = pa.array(rows)
    aside = table.ids.filter(pa.array(~rows))
    return FeatureTable(table.ids.filter(mask), table.features.filter(mask), table.id_column, aside)
