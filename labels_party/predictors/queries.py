"""A query: charged, drawn, stored and answered in one transaction, once for ever.

What the model says is computed before, outside of transactions, and seen by nobody: without the charge there is no
draw, and without the commit neither. If the transaction is run again, or its process dies, the draw that was thrown
away was seen by nobody. An answer that was given is given again for its query, byte for byte, at no charge; a predictor
that is trained anew is another predictor, with answers of its own.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from labels_party.budget.populations import Population
from labels_party.labels.batches import timestamp
from labels_party.labels.standing import PUBLISHED, RETIRED
from labels_party.mechanisms.private_prediction.lattice import laplace_noise
from labels_party.predictors.methods import METHODS, value_of
from labels_party.predictors.predictors import READY, Predictor, Predictors, split_of
from labels_party.storage.files import Home
from labels_party.storage.tables import answers, predictions
from shared.audit.events import ANSWER_PUBLISHED
from shared.errors import BudgetExceeded, Conflict, Unavailable
from shared.message.answer import Answer, AnswerMechanism
from shared.message.canonical import canonical_bytes, digest
from shared.message.manifest import PopulationRef, Unit
from shared.message.prediction import PREDICTION, check_prediction
from shared.message.signing import ANSWER_TYPE, SigningKey
from shared.privacy import Epsilon, delta_string

log = logging.getLogger("label_dp.predictors")


@dataclass(frozen=True)
class Answered:
    """The signed envelope, and how many new queries are left."""

    envelope: bytes
    answer: str
    left: int


@dataclass(frozen=True)
class Outlook:
    """Of queries in their order: how many `new` different ones there are, how many the predictor has `left`, and how
    many of the `first` queries that pays for, those that were answered before being free."""

    new: int
    left: int
    first: int


class Queries:
    def __init__(self, predictors: Predictors, key: SigningKey, home: Home) -> None:
        self.predictors, self.key, self.home = predictors, key, home
        self.database, self.ledger = predictors.database, predictors.ledger

    def predict(self, predictor_id: str, given: Mapping[str, Any], actor: str, audience: str | None = None) -> Answered:
        """Answer one query. `audience` None is the owner.

        Raises NotFound, InvalidInput, Conflict (not ready), BudgetExceeded (the cap, or the batch): nothing is charged.
        Raises Unavailable where the answer may stand already; ask again.
        """

        def look(connection: Connection) -> tuple[Answered | None, int, Predictor, Population, tuple[int, ...]]:
            predictor, population = self.predictors.for_audience(connection, predictor_id, audience)
            codes = predictor.plan.features.query(given)
            stored = self._stored(connection, predictor, population, codes)
            if stored is None:
                self._check(connection, predictor, population)
            return stored, self.predictors.asked(connection, predictor_id), predictor, population, codes

        stored, asked, predictor, population, codes = self.database.read("prediction.look", look)
        if stored is not None:
            self._note(predictor_id, asked)  # whoever drew it may have died before
            return stored
        assert predictor.state_key is not None
        method, plan = METHODS[predictor.plan.method], predictor.plan
        arrays = self.predictors.states.get(predictor.state_key)
        fact = method.evaluate(plan, population.domain, arrays, np.array(codes, np.int64))
        _loaded()

        def draw(connection: Connection) -> tuple[Answered, int]:
            now, owner = self.predictors.for_audience(connection, predictor_id, audience)
            found = self._stored(connection, now, owner, codes)
            if found is None:
                self._check(connection, now, owner)
                found = self._answer(connection, now, owner, codes, fact, actor)
            return found, self.predictors.asked(connection, predictor_id)

        answered, asked = self.database.write("prediction.draw", draw)
        self._note(predictor_id, asked)
        return answered

    def outlook(self, predictor_id: str, given: Sequence[Mapping[str, Any]], audience: str | None = None) -> Outlook:
        """What answering all of `given` would take as things stand; nothing is charged, and nothing is kept free for
        them: whoever asks meanwhile is served first.

        Raises NotFound, InvalidInput (a query), and Conflict or BudgetExceeded where new ones cannot be answered at
        all.
        """

        def look(connection: Connection) -> Outlook:
            predictor, population = self.predictors.for_audience(connection, predictor_id, audience)
            digests = [query_digest(predictor.plan.features.query(query)) for query in given]
            asked = sa.select(predictions.c.query).where(predictions.c.predictor == predictor_id)
            paid = set(connection.execute(asked).scalars())
            left = self.predictors.left(connection, predictor, population)
            new: dict[str, int] = {}  # where each first comes
            for row, digest_ in enumerate(digests):
                if digest_ not in paid:
                    new.setdefault(digest_, row)
            if new:
                self._check(connection, predictor, population)
            over = sorted(new.values())[left:]
            return Outlook(len(new), left, over[0] if over else len(digests))

        return self.database.read("prediction.outlook", look)

    def _check(self, connection: Connection, predictor: Predictor, population: Population) -> None:
        """Whether a new query is paid for. Raises Conflict, BudgetExceeded."""
        if predictor.state != READY:
            why = "what it learned is deleted" if predictor.state == RETIRED else "it answers once it is ready"
            raise Conflict(f"Predictor '{predictor.id}' is {predictor.state}: {why}. Earlier answers stay.")
        plan = predictor.plan
        asked = self.predictors.asked(connection, predictor.id)
        if asked >= plan.queries:
            spent = Epsilon(asked * plan.epsilon.nano)
            raise BudgetExceeded(
                f"This predictor's queries may spend ε = {plan.cap} together, and {asked} of ε = {plan.epsilon} each "
                "have. Earlier queries are answered again at no charge; its owner may make another predictor.",
                asked=str(plan.epsilon),
                spent=str(spent),
                lifetime=str(plan.cap),
            )
        self.ledger.check(connection, population, predictor.batch, split_of(plan.epsilon))

    def _stored(
        self, connection: Connection, predictor: Predictor, population: Population, codes: tuple[int, ...]
    ) -> Answered | None:
        query = (
            sa.select(answers.c.id, answers.c.envelope)
            .join(predictions, predictions.c.answer == answers.c.id)
            .where(predictions.c.predictor == predictor.id, predictions.c.query == query_digest(codes))
        )
        row = connection.execute(query).first()
        if row is None:
            return None
        return Answered(bytes(row.envelope), row.id, self.predictors.left(connection, predictor, population))

    def _answer(
        self,
        connection: Connection,
        predictor: Predictor,
        population: Population,
        codes: tuple[int, ...],
        fact: int,
        actor: str,
    ) -> Answered:
        """Charge, then draw, then store: all of it commits together, or nothing did."""
        plan, method = predictor.plan, METHODS[predictor.plan.method]
        batch, _ = self.predictors.batches.get(connection, predictor.batch)
        answer_id, split, now = "ans_" + secrets.token_hex(12), split_of(plan.epsilon), self._now()
        parameters = {
            "predictor": predictor.id,
            "method": plan.method,
            "query": plan.features.shown(codes),
            "threshold": plan.threshold,
        }
        details = {"answer": PREDICTION, "predictor": predictor.id, "query": query_digest(codes)}
        after = self.ledger.charge(connection, population, batch.id, answer_id, split, actor, details)
        self.database.fault("prediction.charged")
        drawn = method.draw(plan, fact)
        assert batch.n is not None
        document = Answer(
            kind=PREDICTION,
            answer=answer_id,
            batch=batch.id,
            population=PopulationRef(id=population.id, name=population.name, label=population.label),
            audiences=list(population.audiences),
            key_id=self.key.public.id,
            created=now[:10],
            n=batch.n,
            domain=population.domain.as_json(),
            out_of_domain=population.out_of_domain,  # type: ignore[arg-type]  # checked when it was declared
            missing_label=population.missing_label,
            parameters=parameters,
            mechanism=AnswerMechanism(name=plan.method, source=method.source, facts=dict(method.facts(plan))),
            epsilon=split.as_json(),
            epsilon_spent=str(after.spent),
            epsilon_lifetime=str(population.lifetime),
            delta_spent=delta_string(after.spent_delta),
            delta_lifetime=delta_string(after.lifetime_delta),
            unit=Unit(
                kind="unit" if population.unit.unit_column else "example",
                column=population.unit.unit_column,
                max_examples=population.unit.max_examples,
                epsilon_per_unit=population.unit.bound(self.ledger.largest(connection, population)),
            ),
            adjacency=method.adjacency,
            result={"value": value_of(plan, population.domain, drawn)},
        )
        check_prediction(document)
        envelope, sha256 = self.key.sign(ANSWER_TYPE, document.document()), digest(document.payload())
        row = {
            "id": answer_id,
            "batch": batch.id,
            "kind": PREDICTION,
            "state": PUBLISHED,
            "request": {"parameters": parameters, "inputs": "", "inputs_mac": ""},
            "epsilon": split.as_json(),
            "epsilon_nano": split.total.nano,
            "audiences": list(population.audiences),
            "requested_by": actor,
            "attempt": 1,
            "created": now,
            "published": now,
            "envelope": envelope,
            "sha256": sha256,
        }
        connection.execute(sa.insert(answers).values(**row))
        query = {"predictor": predictor.id, "query": query_digest(codes), "answer": answer_id}
        connection.execute(sa.insert(predictions).values(**query))
        told = {"answer": PREDICTION, "predictor": predictor.id, "sha256": sha256, "n": batch.n}
        self.ledger.note(connection, ANSWER_PUBLISHED, population, batch.id, answer_id, actor, told)
        return Answered(envelope, answer_id, self.predictors.left(connection, predictor, population))

    def _now(self) -> str:
        return timestamp(self.predictors.batches.clock())

    def _note(self, predictor_id: str, asked: int) -> None:
        """As many bytes in the predictor's file as it gave answers: an old copy of the database knows of fewer. Never
        more than were committed, and before any of them is handed out."""
        try:
            handle = os.open(self.home.predictors / predictor_id, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                missing = asked - os.fstat(handle).st_size
                if missing > 0:
                    os.write(handle, b"." * missing)
                    os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            log.warning("an answer of predictor %s is not noted beside the database: %s", predictor_id, error.strerror)
            raise Unavailable(
                f"The answer cannot be noted beside the database yet ({error.strerror}). It is kept; ask again, at no "
                "further charge."
            ) from None


@lru_cache(maxsize=1)
def _loaded() -> int:
    """A draw for nothing: the sampler takes a second to load, which no transaction should wait for."""
    return laplace_noise(Fraction(1))


def query_digest(codes: tuple[int, ...]) -> str:
    return hashlib.sha256(canonical_bytes(list(codes))).hexdigest()
