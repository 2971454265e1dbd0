"""Members of units as pairs of keyed digests: the index for erasing a person.

A sealed batch keeps them beside its digests, even after its labels are purged, so that releases that cannot be recalled
stay known. Without the party's secret neither ids nor units can be read from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from labels_party.labels.digests import U64, siphash128
from labels_party.labels.erased import text_of
from labels_party.labels.runs import EMPTY, Run, contains, merge, sort_run

if TYPE_CHECKING:
    import pyarrow as pa

Pairs = tuple[Run, Run]  # digests of ids and of units (in file order, not sorted), row by row


def pairs_of(rows: Iterable[tuple[pa.Array, pa.Array]], id_key: bytes, unit_key: bytes) -> Iterator[Pairs]:
    """Yield digest pairs of records (ids, units), in order."""
    for ids, units in rows:
        yield siphash128(ids, id_key), siphash128(units, unit_key)


def stored(pairs: Iterable[Pairs]) -> Iterator[tuple[U64, ...]]:
    """Flatten pairs to the vault's columns."""
    for ids, units in pairs:
        yield *ids, *units


def read(parts: Iterable[tuple[U64, ...]]) -> Iterator[Pairs]:
    """Inverse of `stored`."""
    for id_low, id_high, unit_low, unit_high in parts:
        yield (id_low, id_high), (unit_low, unit_high)


def belonging(units_run: Run, pairs: Callable[[], Iterator[Pairs]]) -> dict[str, str]:
    """Map examples of the units in `units_run` to their unit, both as digest text. The unit of an id's last record
    counts; only ids that ever had one of these units are held in memory."""
    candidates: Run = EMPTY
    for ids, units in pairs():
        matches = contains(units_run, *units)
        if matches.any():
            candidates = merge([candidates, sort_run(ids[0][matches], ids[1][matches])[0]])
    unit_of: dict[str, str] = {}
    if not len(candidates[0]):
        return unit_of
    for ids, units in pairs():
        rows = np.flatnonzero(contains(candidates, *ids))
        unit_of |= dict(zip(_texts(ids, rows), _texts(units, rows), strict=True))
    texts = set(text_of(*units_run))
    return {example: unit for example, unit in unit_of.items() if unit in texts}


def _texts(digests: tuple[U64, U64], rows: np.ndarray[tuple[int], np.dtype[np.intp]]) -> list[str]:
    return text_of(digests[0][rows], digests[1][rows])
