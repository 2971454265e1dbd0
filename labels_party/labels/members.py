"""Members of units, as pairs of keyed digests: the index of an erasure of a person.

A sealed batch keeps them beside its list of digests, when its labels are purged too, so that it can be said later what
cannot be recalled. Neither an id nor a unit can be read from them without the party's secret.
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
    """Of records (ids, units), in their order."""
    for ids, units in rows:
        yield siphash128(ids, id_key), siphash128(units, unit_key)


def stored(pairs: Iterable[Pairs]) -> Iterator[tuple[U64, ...]]:
    """As the vault takes numbers."""
    for ids, units in pairs:
        yield *ids, *units


def read(parts: Iterable[tuple[U64, ...]]) -> Iterator[Pairs]:
    """Inverse of `stored`."""
    for id_low, id_high, unit_low, unit_high in parts:
        yield (id_low, id_high), (unit_low, unit_high)


def belonging(asked: Run, pairs: Callable[[], Iterator[Pairs]]) -> dict[str, str]:
    """Examples of the units `asked`, as text of both digests: example → unit. Of several records of an id the last
    one's unit counts; only ids that had one of these units at some time are held in memory."""
    candidates: Run = EMPTY
    for ids, units in pairs():
        mine = contains(asked, *units)
        if mine.any():
            candidates = merge([candidates, sort_run(ids[0][mine], ids[1][mine])[0]])
    found: dict[str, str] = {}
    if not len(candidates[0]):
        return found
    for ids, units in pairs():
        rows = np.flatnonzero(contains(candidates, *ids))
        found |= dict(zip(_texts(ids, rows), _texts(units, rows), strict=True))
    wanted = set(text_of(*asked))
    return {example: unit for example, unit in found.items() if unit in wanted}


def _texts(digests: tuple[U64, U64], rows: np.ndarray[tuple[int], np.dtype[np.intp]]) -> list[str]:
    return text_of(digests[0][rows], digests[1][rows])
