"""Digests of a label's sealed batches: one permanent run per batch, and few merged runs.

A seal reads merged runs if there are any. They add nothing to the batches' own runs, which are read without them. A row
names the run of each batch's digests, so a merge that ends early leaves a file for the sweep.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from labels_party.labels.batches import HISTORY, RUNS, SEALED, Batch, Batches, Segment
from labels_party.storage.tables import batches as b
from labels_party.storage.tables import segments as s


def may_share_ids(prefix: str | None) -> sa.ColumnElement[bool]:
    """Select batches whose id prefix and this one do not exclude each other."""
    if prefix is None:
        return sa.true()
    longer = sa.func.substr(b.c.id_prefix, 1, len(prefix)) == prefix
    shorter = sa.func.substr(sa.literal(prefix), 1, sa.func.length(b.c.id_prefix)) == b.c.id_prefix
    return sa.or_(b.c.id_prefix.is_(None), longer, shorter)


class History:
    """Queries of the digest runs of sealed batches."""

    def __init__(self, batches: Batches) -> None:
        self.batches = batches

    def last(self, connection: Connection, label: str) -> int:
        """Return the newest seal order of a label name; 0 if none."""
        query = sa.select(sa.func.coalesce(sa.func.max(b.c.seal_order), 0)).where(b.c.label == label)
        return int(connection.execute(query).scalar_one())

    def is_sealed(self, connection: Connection, batch: str) -> bool:
        query = sa.select(b.c.id).where(b.c.id == batch, b.c.seal_order.is_not(None))
        return connection.execute(query).first() is not None

    def runs(self, connection: Connection, batch: Batch) -> list[Segment]:
        """List few runs with the digests of every sealed batch that may share an id with `batch`, itself included."""
        holder = sa.func.coalesce(b.c.merged_into, b.c.id)
        holders = (
            sa.select(
                holder.label("holder"),
                sa.func.max(b.c.merged_into).label("merged"),
                sa.func.min(b.c.seal_order).label("first"),
            )
            .where(b.c.label == batch.label, b.c.seal_order.is_not(None), may_share_ids(batch.id_prefix))
            .group_by(holder)
            .subquery()
        )
        kind = sa.case((holders.c.merged.is_(None), RUNS), else_=HISTORY)
        query = (
            sa.select(s)
            .join(holders, sa.and_(s.c.batch == holders.c.holder, s.c.kind == kind))
            .where(s.c.of == SEALED)
            .order_by(holders.c.first)
        )
        return [Segment(r.kind, r.number, r.key, r.rows, r.of, r.mode) for r in connection.execute(query)]

    def since(self, connection: Connection, batch: Batch, after: int) -> list[tuple[Batch, Segment]]:
        """List such batches sealed after order `after`, in order, each with its own run."""
        return self._own(connection, b.c.label == batch.label, b.c.seal_order > after, may_share_ids(batch.id_prefix))

    def parts(self, connection: Connection, run: Segment) -> list[tuple[Batch, Segment]]:
        """List the batches whose digests a run holds, in seal order, each with its own run; none if no row names the
        run."""
        holder = sa.select(s.c.batch).where(s.c.key == run.key).scalar_subquery()
        return self._own(connection, (b.c.merged_into if run.kind == HISTORY else b.c.id) == holder)

    def forget(self, connection: Connection, run: Segment) -> None:
        """Drop a lost merged run: its batches use their own runs until the next merge."""
        lost_run = sa.and_(s.c.key == run.key, s.c.kind == HISTORY)
        holder = sa.select(s.c.batch).where(lost_run).scalar_subquery()
        connection.execute(sa.update(b).where(b.c.merged_into == holder).values(merged_into=None))
        connection.execute(sa.delete(s).where(lost_run))

    def _own(self, connection: Connection, *where: sa.ColumnElement[bool]) -> list[tuple[Batch, Segment]]:
        rows = connection.execute(sa.select(b).where(*where).order_by(b.c.seal_order))
        sealed = [Batch(**row._mapping) for row in rows]
        return [(of, own) for of in sealed for own in self.batches.segments(connection, of.id, RUNS, SEALED)]


@dataclass(frozen=True)
class HistoryTiers:
    """Runs that a seal of `batch` reads, for `Compaction`; others are not worth a merge."""

    history: History
    batch: Batch

    @property
    def name(self) -> str:
        return f"of label '{self.batch.label}'"

    def key(self) -> str:
        """Return a key in a folder of its own: a purge of a batch lists the batch's folder."""
        return f"history-{secrets.token_hex(8)}/digests.run"

    def runs(self, connection: Connection) -> list[Segment]:
        return self.history.runs(connection, self.batch)

    def replace(self, connection: Connection, sources: list[Segment], key: str, rows: int) -> list[str]:
        keys = [segment.key for segment in sources]
        if not {segment.key for segment in self.runs(connection)} >= set(keys):
            return [key]
        rows_found = connection.execute(sa.select(s.c.batch, s.c.kind).where(s.c.key.in_(keys))).all()
        single, merged = ([row.batch for row in rows_found if row.kind == kind] for kind in (RUNS, HISTORY))
        holder = rows_found[0].batch
        merged_batches = sa.or_(b.c.id.in_(single), b.c.merged_into.in_(merged))
        connection.execute(sa.update(b).where(merged_batches).values(merged_into=holder))
        connection.execute(sa.delete(s).where(s.c.batch.in_(merged), s.c.kind == HISTORY))
        self.history.batches.add_segment(connection, holder, HISTORY, key, rows, SEALED)
        return [segment.key for segment in sources if segment.kind == HISTORY]
