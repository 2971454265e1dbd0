"""Digests of the sealed batches of a label: in a run for each batch for ever, and together in few merged runs.

A seal looks into merged runs where there are some. They hold nothing that the batches' own runs do not: without one,
those are read. Which run holds a batch's digests is a row, so a merge that ends early leaves a file for the sweep.
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
    """Of batches whose id prefix and this one do not exclude each other."""
    if prefix is None:
        return sa.true()
    longer = sa.func.substr(b.c.id_prefix, 1, len(prefix)) == prefix
    shorter = sa.func.substr(sa.literal(prefix), 1, sa.func.length(b.c.id_prefix)) == b.c.id_prefix
    return sa.or_(b.c.id_prefix.is_(None), longer, shorter)


class History:
    def __init__(self, batches: Batches) -> None:
        self.batches = batches

    def last(self, connection: Connection, label: str) -> int:
        """The newest seal order of a label name."""
        query = sa.select(sa.func.coalesce(sa.func.max(b.c.seal_order), 0)).where(b.c.label == label)
        return int(connection.execute(query).scalar_one())

    def is_sealed(self, connection: Connection, batch: str) -> bool:
        query = sa.select(b.c.id).where(b.c.id == batch, b.c.seal_order.is_not(None))
        return connection.execute(query).first() is not None

    def runs(self, connection: Connection, batch: Batch) -> list[Segment]:
        """Few runs with the digests of every sealed batch that may share an id with `batch`, itself included."""
        holder = sa.func.coalesce(b.c.merged_into, b.c.id)
        found = (
            sa.select(
                holder.label("holder"),
                sa.func.max(b.c.merged_into).label("merged"),
                sa.func.min(b.c.seal_order).label("first"),
            )
            .where(b.c.label == batch.label, b.c.seal_order.is_not(None), may_share_ids(batch.id_prefix))
            .group_by(holder)
            .subquery()
        )
        kind = sa.case((found.c.merged.is_(None), RUNS), else_=HISTORY)
        query = (
            sa.select(s)
            .join(found, sa.and_(s.c.batch == found.c.holder, s.c.kind == kind))
            .where(s.c.of == SEALED)
            .order_by(found.c.first)
        )
        return [Segment(r.kind, r.number, r.key, r.rows, r.of, r.mode) for r in connection.execute(query)]

    def since(self, connection: Connection, batch: Batch, after: int) -> list[tuple[Batch, Segment]]:
        """Such batches that were sealed since the seal of order `after`, in their order, each with its own run."""
        return self._own(connection, b.c.label == batch.label, b.c.seal_order > after, may_share_ids(batch.id_prefix))

    def parts(self, connection: Connection, run: Segment) -> list[tuple[Batch, Segment]]:
        """The batches whose digests a run holds, in the order they were sealed, each with its own run; none where
        nothing names it any more."""
        holder = sa.select(s.c.batch).where(s.c.key == run.key).scalar_subquery()
        return self._own(connection, (b.c.merged_into if run.kind == HISTORY else b.c.id) == holder)

    def forget(self, connection: Connection, run: Segment) -> None:
        """A merged run is lost: its batches stand for themselves again, until they are merged anew."""
        lost = sa.and_(s.c.key == run.key, s.c.kind == HISTORY)
        holder = sa.select(s.c.batch).where(lost).scalar_subquery()
        connection.execute(sa.update(b).where(b.c.merged_into == holder).values(merged_into=None))
        connection.execute(sa.delete(s).where(lost))

    def _own(self, connection: Connection, *where: sa.ColumnElement[bool]) -> list[tuple[Batch, Segment]]:
        found = connection.execute(sa.select(b).where(*where).order_by(b.c.seal_order))
        sealed = [Batch(**row._mapping) for row in found]
        return [(of, own) for of in sealed for own in self.batches.segments(connection, of.id, RUNS, SEALED)]


@dataclass(frozen=True)
class HistoryTiers:
    """For `Compaction`: the runs that a seal of `batch` looks into. What no seal looks into is not worth a merge."""

    history: History
    batch: Batch

    @property
    def name(self) -> str:
        return f"of label '{self.batch.label}'"

    def key(self) -> str:
        """In a folder of its own: a purge of a batch lists those of its folder."""
        return f"history-{secrets.token_hex(8)}/digests.run"

    def runs(self, connection: Connection) -> list[Segment]:
        return self.history.runs(connection, self.batch)

    def replace(self, connection: Connection, chosen: list[Segment], key: str, rows: int) -> list[str]:
        keys = [segment.key for segment in chosen]
        if not {segment.key for segment in self.runs(connection)} >= set(keys):
            return [key]
        found = connection.execute(sa.select(s.c.batch, s.c.kind).where(s.c.key.in_(keys))).all()
        single, merged = ([row.batch for row in found if row.kind == kind] for kind in (RUNS, HISTORY))
        holder = found[0].batch
        held = sa.or_(b.c.id.in_(single), b.c.merged_into.in_(merged))
        connection.execute(sa.update(b).where(held).values(merged_into=holder))
        connection.execute(sa.delete(s).where(s.c.batch.in_(merged), s.c.kind == HISTORY))
        self.history.batches.add_segment(connection, holder, HISTORY, key, rows, SEALED)
        return [segment.key for segment in chosen if segment.kind == HISTORY]
