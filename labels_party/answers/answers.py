"""Answers in the database: charged → computing → published, or failed. Charge first (invariant 2).

They are charged to the batch as releases are, and compose with them: a second charge of a batch, of whatever kind, must
be asked for as one. An answer is charged the moment it is asked for, so a four-eyes population, whose charges wait for
a second person, gives none.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from labels_party.answers.allowances import Allowances
from labels_party.answers.kind import AnswerRequest
from labels_party.budget.populations import Population
from labels_party.budget.store import Ledger
from labels_party.labels.batches import FEATURES, Batch, Batches, require_sealed, timestamp
from labels_party.labels.standing import CHARGED, PUBLISHED, refuse_second
from labels_party.storage.idempotency import NO_KEY, IdempotentCall
from labels_party.storage.idempotency import Answer as Reply
from labels_party.storage.tables import answers
from shared.errors import AlreadyReleased, Conflict, NotFound, SecondPersonNeeded, Unavailable
from shared.privacy import EpsilonSplit
from shared.service.database import Database

COMPUTING = "computing"
WORKING = (CHARGED, COMPUTING)
COLUMNS = [column for column in answers.c if column.name not in ("envelope", "epsilon_nano")]


@dataclass(frozen=True)
class StoredAnswer:
    id: str
    batch: str
    kind: str
    state: str
    request: dict[str, Any]
    epsilon: dict[str, str]
    audiences: list[str]
    requested_by: str
    by_audience: str | None
    attempt: int
    lease_owner: str | None
    lease_until: float | None
    created: str
    published: str | None
    sha256: str | None
    problem: dict[str, Any] | None

    @property
    def split(self) -> EpsilonSplit:
        return EpsilonSplit.from_json(self.epsilon)

    @property
    def parameters(self) -> dict[str, Any]:
        found: dict[str, Any] = self.request["parameters"]
        return found

    @property
    def inputs(self) -> str:
        return str(self.request["inputs"])

    @property
    def features(self) -> str:
        return str(self.request.get("features", ""))  # not in what an earlier version stored


class Answers:
    def __init__(self, database: Database, batches: Batches, ledger: Ledger, allowances: Allowances) -> None:
        self.database, self.batches, self.ledger, self.allowances = database, batches, ledger, allowances

    def request(self, batch_id: str, request: AnswerRequest, actor: str, call: IdempotentCall = NO_KEY) -> Reply:
        """Transaction 1: charge the ledger and store the work, in one. Returns (202, the answer).

        Raises NotFound, Conflict (not sealed), SecondPersonNeeded, AlreadyReleased, BudgetExceeded; then nothing was
        charged.
        """

        def charge(connection: Connection) -> Reply:
            def effect() -> Reply:
                batch, population = self.allowed(connection, batch_id, request)
                self._refuse_second(connection, batch_id, request)
                if request.by_audience is not None:
                    self.allowances.judge(connection, batch_id, request.kind, request.split)
                self._still_there(connection, batch_id, request.features)
                answer_id = "ans_" + secrets.token_hex(12)
                details: dict[str, Any] = {"answer": request.kind, "parameters": request.parameters}
                details |= {"additional_release": request.additional_release, "by_audience": request.by_audience}
                self.ledger.charge(connection, population, batch_id, answer_id, request.split, actor, details)
                row = {
                    "id": answer_id,
                    "batch": batch.id,
                    "kind": request.kind,
                    "state": CHARGED,
                    "request": {
                        "parameters": request.parameters,
                        "inputs": request.inputs,
                        "inputs_mac": request.inputs_mac,
                        "features": request.features,
                    },
                    "epsilon": request.split.as_json(),
                    "epsilon_nano": request.split.total.nano,
                    "audiences": list(request.audiences or population.audiences),
                    "requested_by": actor,
                    "by_audience": request.by_audience,
                    "attempt": 0,
                    "created": timestamp(self.batches.clock()),
                }
                connection.execute(sa.insert(answers).values(**row))
                return 202, self.describe(self.get(connection, answer_id), population)

            return call.once(connection, effect)

        return self.database.write("answer.charge", charge)

    def allowed(self, connection: Connection, batch_id: str, request: AnswerRequest) -> tuple[Batch, Population]:
        """What can be refused before any input is read. Raises as `request`, but for budgets."""
        try:
            batch, population = self.batches.get(connection, batch_id)
        except NotFound:
            if request.by_audience is not None:
                raise _unknown(batch_id) from None
            raise
        if request.by_audience is not None:
            # whether a batch is there, is sealed or is somebody else's is the owner's to know (invariant 8)
            known = self.allowances.of(connection, batch_id, request.kind)
            if request.by_audience not in population.audiences or known is None:
                raise _unknown(batch_id)
        elif request.audiences is not None:
            strange = [a for a in request.audiences if a not in population.audiences]
            if strange:
                raise Conflict(f"'{strange[0]}' is no audience of population '{population.name}'.")
        require_sealed(batch)
        if population.four_eyes:
            raise SecondPersonNeeded(
                f"In population '{population.name}' a second person approves what is charged, and a {request.kind} is "
                "charged as it is asked for. Release a message instead, or use a population without four eyes."
            )
        return batch, population

    @staticmethod
    def _refuse_second(connection: Connection, batch_id: str, request: AnswerRequest) -> None:
        try:
            refuse_second(connection, batch_id, additional=request.additional_release, what=request.kind)
        except AlreadyReleased:
            if request.by_audience is None:
                raise
            # what else it carries may be another audience's
            raise AlreadyReleased(
                f"Batch '{batch_id}' carries something already. A {request.kind} is charged on top; ask for it "
                "explicitly (additional_release)."
            ) from None

    def _still_there(self, connection: Connection, batch_id: str, features: str) -> None:
        if features and features not in [s.key for s in self.batches.segments(connection, batch_id, FEATURES)]:
            raise Unavailable("The features of the batch were replaced meanwhile; try again. Nothing was charged.")

    # --- reading ------------------------------------------------------------------------------------------

    def get(self, connection: Connection, answer_id: str, kind: str | None = None) -> StoredAnswer:
        """Raises NotFound, also for an answer of another kind than `kind`."""
        row = (
            answer_id.isprintable() and connection.execute(sa.select(*COLUMNS).where(answers.c.id == answer_id)).first()
        )
        if not row or kind not in (None, row.kind):
            raise NotFound(f"There is no {kind or 'answer'} '{answer_id}'.")
        return StoredAnswer(**row._mapping)

    def population_of(self, connection: Connection, answer: StoredAnswer) -> tuple[Batch, Population]:
        return self.batches.get(connection, answer.batch)

    def of_batch(self, connection: Connection, batch_id: str) -> list[StoredAnswer]:
        query = sa.select(*COLUMNS).where(answers.c.batch == batch_id).order_by(answers.c.created, answers.c.id)
        return [StoredAnswer(**row._mapping) for row in connection.execute(query)]

    def working(self, connection: Connection) -> list[StoredAnswer]:
        query = sa.select(*COLUMNS).where(answers.c.state.in_(WORKING)).order_by(answers.c.created, answers.c.id)
        return [StoredAnswer(**row._mapping) for row in connection.execute(query)]

    def envelope(self, connection: Connection, answer_id: str) -> bytes:
        """The signed document, the same bytes for ever. Raises Conflict before publication."""
        row = connection.execute(sa.select(answers.c.state, answers.c.envelope).where(answers.c.id == answer_id)).one()
        if row.state != PUBLISHED:
            raise Conflict(f"Answer '{answer_id}' is {row.state}; its document can be fetched once it is published.")
        return bytes(row.envelope)

    def tell(self, connection: Connection, event: str, answer_id: str) -> None:
        """Queue a notice of an answer's new state, in the transaction that changed it: what its audience may see."""
        answer = self.get(connection, answer_id)
        _, population = self.population_of(connection, answer)
        described = self.describe(answer, population)
        data = {name: described[name] for name in ("id", "kind", "batch", "population", "state", "epsilon", "sha256")}
        data |= {"published": answer.published and answer.published[:10], "audiences": list(answer.audiences)}
        self.ledger.outbox.queue(connection, event, population.id, data)

    @staticmethod
    def describe(answer: StoredAnswer, population: Population) -> dict[str, Any]:
        """State and cost at any time; a digest once published, and nothing of a computation before."""
        return {
            "id": answer.id,
            "kind": answer.kind,
            "batch": answer.batch,
            "population": population.id,
            "state": answer.state,
            "epsilon": answer.epsilon,
            "parameters": answer.parameters,
            "audiences": answer.audiences,
            "created": answer.created,
            "published": answer.published,
            "sha256": answer.sha256,
            "problem": answer.problem,
            "requested_by": answer.requested_by,
        }


def _unknown(batch_id: str) -> NotFound:
    return NotFound(f"There is no batch '{batch_id}'.")
