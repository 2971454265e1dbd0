"""Bugs that are planted in the product, each of one safeguard."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

import pytest
import sqlalchemy as sa

from label_dp.audit.judged import JudgedStore
from label_dp.audit.store import AuditStore
from label_dp.privacy import Epsilon
from label_dp.store.idempotency import IdempotentCall
from labels_party import bootstrap
from labels_party.labels.batch_uses import FAILED
from labels_party.ledger.people import PeopleLedger
from labels_party.ledger.store import Ledger
from labels_party.storage.tables import work
from labels_party.work import retention, store
from labels_party.work.attempts import Attempts, Lease
from labels_party.work.identity import WorkerIdentity
from labels_party.work.pipeline import Pipeline

Patch = pytest.MonkeyPatch


def unjudged(patch: Patch) -> None:
    """Without the chain's own rules, the second safeguard of what the ledger judges."""
    patch.setattr(JudgedStore, "append", AuditStore.append)


def no_fence(patch: Patch) -> None:
    def change(_self: Any, connection: Any, lease: Lease, **values: object) -> None:
        connection.execute(sa.update(work).where(work.c.id == lease.work.id).values(**values))

    patch.setattr(Attempts, "change", change)


def late_charge(patch: Patch) -> None:
    charge, publish = Ledger.charge, Pipeline._publish

    def publishing(self: Any, connection: Any, lease: Lease, draft: Any) -> None:
        its = lease.work
        charge(self.ledger, connection, lease.population, its.batch, its.id, its.split, its.requested_by, its.asked)
        publish(self, connection, lease, draft)

    patch.setattr(Ledger, "charge", lambda *_: None)
    patch.setattr(Pipeline, "_publish", publishing)


def redraw(patch: Patch) -> None:
    patch.setattr(Pipeline, "_taken_up", lambda self, lease: self._drawn(lease, lambda *_: None))


def repeated_call(patch: Patch) -> None:
    patch.setattr(IdempotentCall, "earlier", lambda *_: None)
    patch.setattr(IdempotentCall, "once", lambda _self, _connection, effect: effect())


def rows(patch: Patch) -> None:
    def spent(_self: Any, connection: Any, batch: str) -> Epsilon:
        query = sa.select(sa.func.sum(work.c.epsilon_nano)).where(work.c.batch == batch, work.c.state != FAILED)
        return Epsilon(int(connection.execute(query).scalar() or 0))

    patch.setattr(Ledger, "spent", spent)
    unjudged(patch)


def no_body(patch: Patch) -> None:
    patch.setattr(PeopleLedger, "judge", lambda *_: None)
    unjudged(patch)


def eternal_lease(patch: Patch) -> None:
    patch.setattr(WorkerIdentity, "holds", lambda _self, owner, _left: owner is not None)


def early_publication(patch: Patch) -> None:
    def draw_and_publish(self: Any, lease: Lease, progress: Any = lambda *_: None) -> None:
        draft = self._drawn(lease, progress) if lease.work.draft is None else self._taken_up(lease)
        noun = self.works.family(lease.work).noun
        self.database.write(f"{noun}.publish", lambda c: self._publish(c, lease, draft))
        self._keep(lease, draft)

    patch.setattr(Pipeline, "draw_and_publish", draw_and_publish)


def hasty_purge(patch: Patch) -> None:
    patch.setattr(retention, "standing", lambda *_: [])


def one_pair_of_eyes(patch: Patch) -> None:
    patch.setattr(store, "second_person", lambda *_: False)
    unjudged(patch)


def old_copy(patch: Patch) -> None:
    patch.setattr(bootstrap, "_check_age", lambda *_: None)


class Bug(Enum):
    """What plants it, and in a sentence what the code does then."""

    NO_FENCE = no_fence, "an attempt publishes although it lost its lease"
    LATE_CHARGE = late_charge, "the charge comes with the publication, after the draw"
    REDRAW = redraw, "an attempt draws anew although the store saw a byte of the draft"
    REPEATED_CALL = repeated_call, "a call repeated after a lost reply is charged again"
    ROWS = rows, "what was spent is summed over rows, so that failed work costs nothing"
    NO_BODY = no_body, "a charge is not held to the cap of the body of people"
    ETERNAL_LEASE = eternal_lease, "the lease of a dead worker never ends"
    EARLY_PUBLICATION = early_publication, "a document is published before its files are durable"
    HASTY_PURGE = hasty_purge, "a purge does not wait for charged work"
    ONE_PAIR_OF_EYES = one_pair_of_eyes, "a request in a four-eyes population is charged at once"
    OLD_COPY = old_copy, "an old database in which drawn work still waits is opened"

    @contextlib.contextmanager
    def planted(self) -> Iterator[None]:
        plant: Callable[[Patch], None] = self.value[0]
        with Patch.context() as patch:
            plant(patch)
            yield
