"""Allowances of audiences: the ε of a batch that its owner allows them for answers of one kind.

The ledger belongs to the owner. Without an allowance an audience causes no charge, and a batch replies to it as if it
did not exist. With one the audience chooses when and in how many parts to spend it. An allowance reserves nothing of
the population's lifetime ε. Allowed and used ε follow from audit events.
"""

from __future__ import annotations

from sqlalchemy.engine import Connection

from label_dp.audit.events import ALLOWANCE_SET
from label_dp.errors import BudgetExceeded, InvalidEpsilon, SecondPersonNeeded
from label_dp.privacy import ZERO, Epsilon, EpsilonSplit
from label_dp.schemas.replies import AllowanceOut
from label_dp.store.database import Database
from label_dp.store.idempotency import NO_KEY, IdempotentCall, Reply
from labels_party.labels.batches import Batch, Batches, require_sealed
from labels_party.ledger.populations import Population
from labels_party.ledger.store import Ledger


class Allowances:
    """Allowances of batches and their use."""

    def __init__(self, database: Database, batches: Batches, ledger: Ledger) -> None:
        self.database, self.batches, self.ledger = database, batches, ledger

    def set(self, batch_id: str, kind: str, epsilon: Epsilon, actor: str, call: IdempotentCall = NO_KEY) -> Reply:
        """Allow audiences `epsilon` in total for answers of `kind`, including what they have spent; 0 ends the
        allowance.

        Raises NotFound, Conflict (not sealed), SecondPersonNeeded (four eyes), InvalidEpsilon (more than the lifetime).
        """

        def store(connection: Connection) -> Reply:
            def effect() -> Reply:
                batch, population = self.batches.get(connection, batch_id)
                require_sealed(batch)
                self.put(connection, batch, population, kind, epsilon, actor)
                return 200, self.describe(connection, batch_id, kind)

            return call.once(connection, effect)

        return self.database.write("allowance.set", store)

    def put(
        self, connection: Connection, batch: Batch, population: Population, kind: str, epsilon: Epsilon, actor: str
    ) -> None:
        """Record an allowance, as `set` does."""
        if population.four_eyes:
            raise SecondPersonNeeded(
                f"In population '{population.name}' a second person approves what is charged, so audiences cannot be "
                "allowed to charge by themselves."
            )
        if epsilon > population.lifetime:
            raise InvalidEpsilon(f"An allowance is at most the lifetime ε {population.lifetime}.")
        details = {"answer": kind, "epsilon": str(epsilon)}
        self.ledger.note(connection, ALLOWANCE_SET, population, batch.id, None, actor, details)

    def of(self, connection: Connection, batch_id: str, kind: str) -> Epsilon | None:
        """Return the total allowance; None if there is none."""
        events = self.ledger.audit.events(connection, batch=batch_id, kind=ALLOWANCE_SET)
        allowed = [event.details["epsilon"] for event in events if event.details["answer"] == kind]
        return Epsilon.parse(allowed[-1]) or None if allowed else None

    def used(self, connection: Connection, batch_id: str, kind: str) -> Epsilon:
        """Return the ε charged by audiences themselves, failed answers included: their charge is kept."""
        return Epsilon(self.ledger.audit.charged_against(connection, batch_id, kind))

    def judge(self, connection: Connection, batch_id: str, kind: str, split: EpsilonSplit) -> None:
        """Raise BudgetExceeded if a charge by an audience would exceed the allowance."""
        allowed = self.of(connection, batch_id, kind) or ZERO
        used = self.used(connection, batch_id, kind)
        if split.total + used > allowed:
            epsilon = allowed - used if used < allowed else ZERO
            raise BudgetExceeded(
                f"ε = {split.total} was asked for, but the owner allows ε {allowed} of this batch for every {kind} "
                f"that audiences ask for, of which {epsilon} is left. Ask for less, or ask the owner.",
                asked=str(split.total),
                spent=str(used),
                lifetime=str(allowed),
            )

    def describe(self, connection: Connection, batch_id: str, kind: str) -> AllowanceOut:
        allowed, used = self.of(connection, batch_id, kind) or ZERO, self.used(connection, batch_id, kind)
        epsilon = allowed - used if used < allowed else ZERO
        return {
            "batch": batch_id,
            "kind": kind,
            "epsilon": str(allowed),
            "epsilon_used": str(used),
            "epsilon_left": str(epsilon),
        }
