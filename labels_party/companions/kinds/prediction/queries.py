"""A query: charged, drawn, stored and answered in one transaction, once for ever.

The model's output is computed before, outside of transactions, and seen by nobody: without the charge there is no draw,
and without the commit neither takes effect. If the transaction is run again, or its process dies, nobody saw the
discarded draw. An answered query gets the same answer again, byte for byte, at no charge; a predictor that is trained
anew is another predictor, with answers of its own.

An answer belongs to its asker: an audience, or the owner. Another audience receives it once it asks an equal query,
which is the same release and no further charge; until then nothing shows it the query or the value. It receives one
only if a new query would be answered as well: else it could try all queries, and none of its guesses would cost.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.audit.events import ANSWER_SHARED
from label_dp.companions.kinds.prediction import PREDICTION
from label_dp.documents.canonical import canonical_bytes
from label_dp.errors import BudgetExceeded, Conflict, Unavailable
from label_dp.logs import event
from label_dp.privacy import Epsilon
from labels_party.companions.kinds.prediction.kind import Query
from labels_party.companions.kinds.prediction.methods import METHODS
from labels_party.companions.kinds.prediction.predictors import READY, PredictorRecord, Predictors, split_of
from labels_party.companions.mechanisms.private_prediction.lattice import laplace_noise
from labels_party.labels.batch_uses import RETIRED
from labels_party.ledger.populations import Population
from labels_party.mechanisms.entropy import LaplaceNoise
from labels_party.storage.files import Home
from labels_party.storage.tables import predictions, work, work_files
from labels_party.work.store import Works

log = logging.getLogger("label_dp.predictors")


@dataclass(frozen=True)
class Answered:
    """Signed envelope, and the number of new queries left."""

    envelope: bytes
    answer: str
    left: int


@dataclass(frozen=True)
class _Stored:
    """Earlier answer, and the audiences that asked for it."""

    answered: Answered
    audiences: tuple[str, ...]

    def belongs_to(self, audience: str | None) -> bool:
        return audience is None or audience in self.audiences


@dataclass(frozen=True)
class Outlook:
    """Outlook of queries in their order: the number of distinct `new` ones, the number the predictor has `left`, and
    how many of the `first` queries that pays for, repeated ones being free."""

    new: int
    left: int
    first: int


class Queries:
    """The service of queries."""

    def __init__(self, predictors: Predictors, works: Works, home: Home) -> None:
        self.predictors, self.works, self.home = predictors, works, home
        self.database, self.ledger = predictors.database, predictors.ledger

    def predict(self, predictor_id: str, given: Mapping[str, Any], actor: str, audience: str | None = None) -> Answered:
        """Answer one query. `audience` None is the owner.

        Raises NotFound, InvalidInput, Conflict (not ready), BudgetExceeded (the cap, or the batch): nothing is charged.
        Raises Unavailable if the answer may be stored already; ask again.
        """

        def look(connection: Connection) -> tuple[_Stored | None, int, PredictorRecord, Population, tuple[int, ...]]:
            predictor, population = self.predictors.for_audience(connection, predictor_id, audience)
            codes = predictor.plan.features.query(given)
            stored = self._stored(connection, predictor, population, codes)
            if stored is None or not stored.belongs_to(audience):
                self._check(connection, predictor, population)
            return stored, self.predictors.answered(connection, predictor_id), predictor, population, codes

        stored, answer_count, predictor, population, codes = self.database.read("prediction.look", look)
        if stored is not None:
            if not stored.belongs_to(audience):
                share = stored.answered.answer
                self.database.write(
                    "prediction.share", lambda c: self._share(c, predictor, population, share, actor, audience)
                )
            self._note(predictor_id, answer_count)  # the process that drew it may have died before
            return stored.answered
        assert predictor.state_key is not None
        method, plan = METHODS[predictor.plan.method], predictor.plan
        arrays = self.predictors.states.get(predictor.state_key)
        fact = method.evaluate(plan, population.domain, arrays, np.array(codes, np.int64))
        _loaded()

        def draw(connection: Connection) -> tuple[Answered, int]:
            now, owner = self.predictors.for_audience(connection, predictor_id, audience)
            stored = self._stored(connection, now, owner, codes)
            if stored is None or not stored.belongs_to(audience):
                self._check(connection, now, owner)
            if stored is None:
                query = Query(now, codes, self._mac(predictor_id, codes), fact, audience)
                answer = self._answer(connection, owner, query, actor)
            else:
                answer = stored.answered
                self._share(connection, now, owner, answer.answer, actor, audience)
            return answer, self.predictors.answered(connection, predictor_id)

        answered, answer_count = self.database.write("prediction.draw", draw)
        self._note(predictor_id, answer_count)
        return answered

    def outlook(self, predictor_id: str, given: Sequence[Mapping[str, Any]], audience: str | None = None) -> Outlook:
        """Estimate the outcome of answering all of `given` now; nothing is charged or reserved, so other queries
        meanwhile come first.

        Raises NotFound, InvalidInput (a query), and Conflict or BudgetExceeded if new ones cannot be answered at all.
        """

        def look(connection: Connection) -> Outlook:
            predictor, population = self.predictors.for_audience(connection, predictor_id, audience)
            digests = [self._mac(predictor_id, predictor.plan.features.query(query)) for query in given]
            answered_queries = sa.select(predictions.c.query).where(predictions.c.predictor == predictor_id)
            answered = set(connection.execute(answered_queries).scalars())
            remaining = self.predictors.left(connection, predictor, population)
            new: dict[str, int] = {}  # the first position of each
            for row, digest_ in enumerate(digests):
                if digest_ not in answered:
                    new.setdefault(digest_, row)
            if new:
                self._check(connection, predictor, population)
            over = sorted(new.values())[remaining:]
            return Outlook(len(new), remaining, over[0] if over else len(digests))

        return self.database.read("prediction.outlook", look)

    def _check(self, connection: Connection, predictor: PredictorRecord, population: Population) -> None:
        """Check whether a new query is paid for. Raises Conflict, BudgetExceeded."""
        if predictor.state != READY:
            why = "what it learned is deleted" if predictor.state == RETIRED else "it answers once it is ready"
            raise Conflict(f"Predictor '{predictor.id}' is {predictor.state}: {why}. Earlier answers stay.")
        plan = predictor.plan
        queries = self.predictors.asked(connection, predictor)
        if queries >= plan.queries:
            spent = Epsilon(queries * plan.epsilon.nano)
            raise BudgetExceeded(
                f"This predictor's queries may spend ε = {plan.cap} together, and {queries} of ε = {plan.epsilon} each "
                "have. Earlier queries are answered again at no charge; its owner may make another predictor.",
                asked=str(plan.epsilon),
                spent=str(spent),
                lifetime=str(plan.cap),
            )
        self.ledger.check(
            connection, population, predictor.batch, split_of(plan.epsilon), {"answer": PREDICTION}, eyes=False
        )

    def _stored(
        self, connection: Connection, predictor: PredictorRecord, population: Population, codes: tuple[int, ...]
    ) -> _Stored | None:
        query = (
            sa.select(work.c.id, work.c.audiences, work_files.c.content)
            .join(predictions, predictions.c.answer == work.c.id)
            .join(work_files, work_files.c.work == work.c.id)
            .where(predictions.c.predictor == predictor.id, predictions.c.query == self._mac(predictor.id, codes))
        )
        row = connection.execute(query).first()
        if row is None:
            return None
        remaining = self.predictors.left(connection, predictor, population)
        return _Stored(Answered(bytes(row.content), row.id, remaining), tuple(row.audiences))

    def _share(
        self,
        connection: Connection,
        predictor: PredictorRecord,
        population: Population,
        answer_id: str,
        actor: str,
        audience: str | None,
    ) -> None:
        """Record that an audience asked an answered query; no effect if recorded."""
        t = work
        had = connection.execute(sa.select(t.c.audiences).where(t.c.id == answer_id)).scalar_one()
        if audience is None or audience in had:
            return
        connection.execute(sa.update(t).where(t.c.id == answer_id).values(audiences=sorted([*had, audience])))
        members = {"answer": PREDICTION, "predictor": predictor.id}
        about = (population, predictor.batch, answer_id)
        self.ledger.note(connection, ANSWER_SHARED, *about, actor, members, audiences=(audience,))

    def _answer(self, connection: Connection, population: Population, query: Query, actor: str) -> Answered:
        """Charge, then draw, then store: all of it commits together, or nothing does."""
        predictor = query.predictor
        answer_work, signed_files = self.works.at_once(
            connection, self.works.immediate(PREDICTION), predictor.batch, query, actor
        )
        key = {"predictor": predictor.id, "query": query.digest, "answer": answer_work.id}
        connection.execute(sa.insert(predictions).values(**key))
        return Answered(signed_files.envelope, answer_work.id, self.predictors.left(connection, predictor, population))

    def _mac(self, predictor_id: str, codes: tuple[int, ...]) -> str:
        """Compute a query's identifier in tables and audit events: keyed, since queries are few enough to be
        guessed."""
        return self.predictors.secrets.mac("query", predictor_id.encode() + b"\0", canonical_bytes(list(codes)))

    def _note(self, predictor_id: str, answer_count: int) -> None:
        """Write as many bytes to the predictor's file as it gave answers: an old copy of the database has fewer.

        Never more than were committed, and before any of them is returned.
        """
        try:
            handle = os.open(self.home.predictors / predictor_id, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                missing = answer_count - os.fstat(handle).st_size
                if missing > 0:
                    os.write(handle, b"." * missing)
                    os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            record = event("answer-not-noted", predictor=predictor_id, error=error.strerror)
            log.warning("an answer of predictor %s is not noted: %s", predictor_id, error.strerror, extra=record)
            raise Unavailable(
                f"The answer cannot be noted beside the database yet ({error.strerror}). It is kept; ask again, at no "
                "further charge."
            ) from None


@lru_cache(maxsize=1)
def _loaded() -> int:
    """Draw once without use: the sampler takes a second to load, which no transaction should wait for."""
    return laplace_noise(LaplaceNoise(1, Fraction(1)))
