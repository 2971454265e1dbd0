"""Batches in the ledger but not in the store: sealed after the backup that was restored.

Their labels and digests are gone, so their ids are not recognised. A batch that may hold one is charged at its seal the
most that any such batch has spent, so that no label is charged less than it spent.
"""

from __future__ import annotations

import secrets
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.audit.events import APPROVED, FAILED, REQUESTED
from label_dp.errors import Conflict
from label_dp.privacy import ZERO, Epsilon, EpsilonSplit
from labels_party.labels.batches import PURGED, RUNS, SEALED, Batch
from labels_party.labels.history import may_share_ids
from labels_party.ledger.populations import Population
from labels_party.ledger.store import Ledger
from labels_party.storage.tables import batches as b
from labels_party.storage.tables import segments as s

ASKED_BY, CHARGED_BY = "restore", "ledger"


def carry_lost(connection: Connection, ledger: Ledger, batch: Batch, population: Population) -> None:
    """Charge the spent budget of lost batches to `batch`, in the transaction that seals it, after its event. Raises
    Conflict if the population bounds examples per unit, whose tallies are lost."""
    batches_lost = lost_batches(connection, batch)
    spent = {name: (ledger.spent(connection, name).nano, ledger.spent_delta(connection, name)) for name in batches_lost}
    nano = max((each for each, _ in spent.values()), default=0)
    if not nano:
        return
    if population.unit.max_examples is not None:
        raise Conflict(
            f"Batch '{batches_lost[0]}' of this label was lost with a database that was restored, and with it how many "
            "examples of each unit it had. Seal this one in a new population, of another label name."
        )
    delta = min(max(each for _, each in spent.values()), population.lifetime_delta)
    split = EpsilonSplit(ZERO, ZERO, Epsilon(min(nano, population.lifetime.nano)), delta)
    charge_kept(connection, ledger, population, batch.id, split, {"lost": batches_lost[:100]})


def lost_batches(connection: Connection, batch: Batch) -> list[str]:
    """List batches without digests that may share an id with `batch`."""
    run = sa.select(s.c.batch).where(s.c.batch == b.c.id, s.c.kind == RUNS, s.c.of == SEALED)
    gone = (b.c.label == batch.label, b.c.state == PURGED, b.c.id != batch.id, ~run.exists())
    query = sa.select(b.c.id).where(*gone, may_share_ids(batch.id_prefix)).order_by(b.c.id)
    return list(connection.execute(query).scalars())


def charge_kept(
    connection: Connection,
    ledger: Ledger,
    population: Population,
    batch: str,
    split: EpsilonSplit,
    details: dict[str, Any],
) -> None:
    """Charge without a draw, with the events that four eyes require."""
    about = (population, batch, f"rel_lost{secrets.token_hex(10)}")
    ask_first(connection, ledger, population, *about[1:], split, details)
    ledger.charge(connection, *about, split, CHARGED_BY, details)
    ledger.note(connection, FAILED, *about, CHARGED_BY, {"code": "lost", "charge": "kept"})


def ask_first(
    connection: Connection,
    ledger: Ledger,
    population: Population,
    batch: str,
    work: str,
    split: EpsilonSplit,
    details: dict[str, Any],
) -> None:
    """Record request and approval of a charge by CHARGED_BY in a four-eyes population. Such a charge covers budget
    already spent, so it needs no consent."""
    if population.four_eyes:
        request = details | {"epsilon": split.as_json()}
        ledger.note(connection, REQUESTED, population, batch, work, ASKED_BY, request)
        ledger.note(connection, APPROVED, population, batch, work, CHARGED_BY, {"requested_by": ASKED_BY})
