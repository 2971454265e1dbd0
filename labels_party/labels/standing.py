"""What was charged to a batch: its releases and its answers, which compose, wait for each other and outlive its labels.

Releases, answers, erasures and retention all ask here, so that a new kind of charge is told of in one place.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from labels_party.storage.tables import answers, predictors, releases
from shared.errors import AlreadyReleased

CHARGED, PUBLISHED, FAILED = "charged", "published", "failed"
TRAINING, RETIRED = "training", "retired"  # of predictors, which stand on a batch and charge it query by query
ENDED = (FAILED, RETIRED)
DRAWING = ("drawing", "computing")  # labels are being read for it


@dataclass(frozen=True)
class Standing:
    """`what` is "release", the kind of an answer, or "predictor"."""

    id: str
    what: str
    state: str
    created: str
    published: str | None

    @property
    def drawing(self) -> bool:
        return self.state in DRAWING

    @property
    def working(self) -> bool:
        """Charged, and its labels are needed still."""
        return self.state == CHARGED or self.drawing


def standing(connection: Connection, batch: str) -> list[Standing]:
    """Everything of `batch` that was asked for, in the order of asking."""
    r, a, p = releases, answers, predictors
    queries = (
        sa.select(r.c.id, sa.literal("release"), r.c.state, r.c.created, r.c.published).where(r.c.batch == batch),
        sa.select(a.c.id, a.c.kind, a.c.state, a.c.created, a.c.published).where(a.c.batch == batch),
        sa.select(p.c.id, sa.literal("predictor"), p.c.state, p.c.created, sa.null()).where(p.c.batch == batch),
    )
    found = [Standing(*row) for query in queries for row in connection.execute(query)]
    return sorted(found, key=lambda s: (s.created, s.id))


def refuse_second(connection: Connection, batch: str, *, additional: bool, what: str = "release") -> None:
    """Raises AlreadyReleased where the batch carries something and no charge on top was asked for."""
    carried = [s for s in standing(connection, batch) if s.state not in ENDED]
    if carried and not additional:
        raise AlreadyReleased(
            f"Batch '{batch}' carries {carried[-1].what} '{carried[-1].id}' already. A further {what} of the same "
            "examples is charged on top; ask for it explicitly (additional_release, or --additional-release)."
        )


def charged_batches() -> sa.CompoundSelect[tuple[str, str, str | None]]:
    """(batch, state, published) of every release and answer, as one query."""
    columns = [(t.c.batch, t.c.state, t.c.published) for t in (releases, answers)]
    return sa.union_all(*(sa.select(*found) for found in columns))
