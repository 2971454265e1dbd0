"""Erased examples at the seal: keyed digests whose labels never count again in their population."""

from __future__ import annotations

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from labels_party.labels.digests import U64
from labels_party.labels.runs import Run, sort_run
from labels_party.storage.tables import erased_units, erasures


def text_of(low: U64, high: U64) -> list[str]:
    """Format digests for storage: 32 hexadecimal digits each."""
    return [f"{h:016x}{w:016x}" for h, w in zip(high.tolist(), low.tolist(), strict=True)]


def run_of(texts: list[str]) -> Run:
    """Parse the output of `text_of` into a sorted run."""
    high = np.array([int(t[:16], 16) for t in texts], np.uint64)
    low = np.array([int(t[16:], 16) for t in texts], np.uint64)
    return sort_run(low, high)[0]


def blanked(connection: Connection, population: str) -> Run:
    """Return the digests of examples of a population with an erasure request: they take the missing-label value."""
    query = sa.select(erasures.c.id_digest).where(erasures.c.population == population)
    return run_of(list(connection.execute(query).scalars()))


def blanked_units(connection: Connection, population: str) -> Run:
    """Return the digests of units with an erasure request: none of their examples keeps its label."""
    query = sa.select(erased_units.c.unit_digest).where(erased_units.c.population == population)
    return run_of(list(connection.execute(query).scalars()))


def count_blanked(connection: Connection, population: str) -> int:
    """Count these examples and units: erasures are only ever added, so an equal count means an equal set."""
    counts = (sa.select(sa.func.count()).where(t.c.population == population) for t in (erasures, erased_units))
    return sum(int(connection.execute(query).scalar_one()) for query in counts)
