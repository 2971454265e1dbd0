"""Uses of a batch: charged work of every kind, which composes and outlives its labels, and its predictors.

Read by work, erasures and retention.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.errors import AlreadyReleased
from labels_party.storage.tables import predictors, work

ACCEPTED, CHARGED, DRAWING, PUBLISHED, FAILED = "accepted", "charged", "drawing", "published", "failed"
STATES = (ACCEPTED, CHARGED, DRAWING, PUBLISHED, FAILED)
WORKING = (CHARGED, DRAWING)
TRAINING, RETIRED = "training", "retired"  # of predictors, which stand on a batch and charge it query by query
ENDED = (FAILED, RETIRED)


@dataclass(frozen=True)
class BatchUse:
    """One use; `what` is the kind of work, or "predictor"."""

    id: str
    what: str
    state: str
    created: str
    published: str | None

    @property
    def drawing(self) -> bool:
        """True while its labels are being read."""
        return self.state == DRAWING

    @property
    def working(self) -> bool:
        """True if charged and in need of its labels."""
        return self.state in WORKING


def standing(connection: Connection, batch: str) -> list[BatchUse]:
    """List all uses of `batch` in order of request."""
    w, p = work, predictors
    queries = (
        sa.select(w.c.id, w.c.kind, w.c.state, w.c.created, w.c.published).where(w.c.batch == batch),
        sa.select(p.c.id, sa.literal("predictor"), p.c.state, p.c.created, sa.null()).where(p.c.batch == batch),
    )
    batch_uses = [BatchUse(*row) for query in queries for row in connection.execute(query)]
    return sorted(batch_uses, key=lambda s: (s.created, s.id))


def refuse_second(connection: Connection, batch: str, *, additional: bool, what: str) -> None:
    """Raise AlreadyReleased if the batch has a use and no additional charge was requested."""
    carried = [s for s in standing(connection, batch) if s.state not in ENDED]
    if carried and not additional:
        raise AlreadyReleased(
            f"Batch '{batch}' carries {carried[-1].what} '{carried[-1].id}' already. A further {what} of the same "
            "examples is charged on top; ask for it explicitly (additional_release, or --additional-release)."
        )
