"""Erased examples as the seal sees them: keyed digests whose labels never count again in their population."""

from __future__ import annotations

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from labels_party.labels.digests import U64
from labels_party.labels.runs import Run, sort_run
from labels_party.storage.tables import erasures


def text_of(low: U64, high: U64) -> list[str]:
    """Digests as they are stored: 32 hexadecimal digits each."""
    return [f"{h:016x}{w:016x}" for h, w in zip(high.tolist(), low.tolist(), strict=True)]


def run_of(texts: list[str]) -> Run:
    """Inverse of `text_of`, as a sorted run."""
    high = np.array([int(t[:16], 16) for t in texts], np.uint64)
    low = np.array([int(t[16:], 16) for t in texts], np.uint64)
    return sort_run(low, high)[0]


def blanked(connection: Connection, population: str) -> Run:
    """Digests of all examples of a population whose erasure was asked for: they take the missing-label value."""
    query = sa.select(erasures.c.id_digest).where(erasures.c.population == population)
    return run_of(list(connection.execute(query).scalars()))


def count_blanked(connection: Connection, population: str) -> int:
    """How many there are: erasures are only ever added, so the same number is the same set."""
    query = sa.select(sa.func.count()).select_from(erasures).where(erasures.c.population == population)
    return int(connection.execute(query).scalar_one())
