"""Predictors in the database: training → ready, or failed; retired once the labels they learned from are purged or
erased.

Making one charges nothing, since nothing of it leaves: every query is charged (`queries.py`). Until its owner retires
it, a predictor counts for its batch as a release does, so that every other charge to the batch must be requested as an
additional one.
"""

from __future__ import annotations

import io
import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.actors import with_names
from label_dp.audit.events import PREDICTOR_CREATED, PREDICTOR_RETIRED
from label_dp.companions.kinds.prediction import PREDICTION
from label_dp.errors import LabelDPError, NotFound, SecondPersonNeeded, Unavailable
from label_dp.logs import event
from label_dp.privacy import ZERO, Epsilon, EpsilonSplit
from label_dp.problems import problem
from label_dp.schemas.predictor import Predictor as PredictorAsked
from label_dp.store.apikeys import names_of
from label_dp.store.database import Database
from label_dp.store.idempotency import NO_KEY, IdempotentCall, Reply
from labels_party.companions.kinds.feature_store import FeatureStore
from labels_party.companions.kinds.prediction.methods import METHODS, PredictorPlan
from labels_party.companions.kinds.prediction.plan import make_plan, of_query, schema_of
from labels_party.labels.batch_uses import RETIRED, TRAINING, refuse_second
from labels_party.labels.batches import PREDICTOR, SEALED, Batch, Batches, require_sealed, timestamp
from labels_party.labels.digests import siphash128
from labels_party.labels.seal import SealedLabels
from labels_party.labels.vault import LabelVault
from labels_party.ledger.populations import Population
from labels_party.ledger.store import Ledger
from labels_party.storage.secrets import Secrets
from labels_party.storage.tables import api_keys, predictions, predictors
from labels_party.work.leases import Leases

log = logging.getLogger("label_dp.predictors")
READY, FAILED = "ready", "failed"
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PredictorRecord:
    """Row of the predictors table."""

    id: str
    batch: str
    state: str
    plan: PredictorPlan
    created: str
    created_by: str
    trained: str | None
    state_key: str | None
    features_key: str
    problem: dict[str, Any] | None


def split_of(epsilon: Epsilon) -> EpsilonSplit:
    """Charge all of `epsilon` to the answer."""
    return EpsilonSplit(ZERO, ZERO, epsilon)


class Predictors:
    """Predictors of batches: training, queries and retirement."""

    def __init__(
        self,
        database: Database,
        batches: Batches,
        ledger: Ledger,
        vault: LabelVault,
        secrets_: Secrets,
        leases: Leases,
        features: FeatureStore,
    ) -> None:
        self.database, self.batches, self.ledger, self.vault, self.secrets = database, batches, ledger, vault, secrets_
        self.leases = leases
        self.features, self.states = features, StateStore(vault)

    # --- creation -----------------------------------------------------------------------------------------

    def create(self, batch_id: str, asked: PredictorAsked, actor: str, call: IdempotentCall = NO_KEY) -> Reply:
        """Queue a predictor for training; returns (202, the predictor). Nothing is charged, and no label is read yet.

        Raises Conflict (not sealed, no features), SecondPersonNeeded, AlreadyReleased, BudgetExceeded (not enough for
        one query), InvalidInput and its kinds.
        """

        def look(connection: Connection) -> tuple[Reply | None, Batch, Population, list[str], str]:
            batch, population = self.batches.get(connection, batch_id)
            earlier = call.earlier(connection)
            if earlier is not None:
                return earlier, batch, population, [], ""
            self._check(connection, batch_id, asked)
            sealed = [s.key for s in self.batches.segments(connection, batch_id, SEALED)]
            return None, batch, population, sealed, self.features.key(connection, batch_id)

        earlier, _, population, sealed, features_key = self.database.read("predictor.look", look)
        if earlier is not None:
            return earlier
        n = self.features.count(sealed, features_key, schema_of(asked))
        plan = make_plan(asked, population.domain, n)

        def store(connection: Connection) -> Reply:
            def effect() -> Reply:
                self._check(connection, batch_id, asked)
                if self.features.key(connection, batch_id) != features_key:
                    raise Unavailable("The features of the batch were replaced meanwhile; try again.")
                predictor_id = "prd_" + secrets.token_hex(12)
                row = {
                    "id": predictor_id,
                    "batch": batch_id,
                    "state": TRAINING,
                    "plan": plan.as_json(),
                    "created": timestamp(self.batches.clock()),
                    "created_by": actor,
                    "features_key": features_key,
                }
                connection.execute(sa.insert(predictors).values(**row))
                details: dict[str, Any] = {"predictor": predictor_id, "plan": plan.as_json()}
                details |= {"additional_release": asked.additional_release}
                self.ledger.note(connection, PREDICTOR_CREATED, population, batch_id, predictor_id, actor, details)
                return 202, self.describe(connection, self.get(connection, predictor_id), population)

            return call.once(connection, effect)

        return self.database.write("predictor.create", store)

    def _check(self, connection: Connection, batch_id: str, request: PredictorAsked) -> None:
        batch, population = self.batches.get(connection, batch_id)
        require_sealed(batch)
        if population.four_eyes:
            raise SecondPersonNeeded(
                f"In population '{population.name}' a second person approves what is charged, and queries are charged "
                "as they come. Release a message instead, or use a population without four eyes."
            )
        refuse_second(connection, batch_id, additional=request.additional_release, what="predictor")
        self.ledger.check(
            connection, population, batch_id, split_of(of_query(request)), {"answer": PREDICTION}, eyes=False
        )

    # --- training -----------------------------------------------------------------------------------------

    def run_due(self, stopped: Callable[[], bool] = lambda: False) -> int:
        """Train waiting predictors; returns how many became ready. Transient errors are raised at the end."""
        query = sa.select(predictors.c.id).where(predictors.c.state == TRAINING).order_by(predictors.c.created)
        failure: Exception | None = None
        ready = 0
        for predictor_id in self.database.read("predictor.waiting", lambda c: c.execute(query).scalars().all()):
            if stopped():
                break
            try:
                ready += self.train(predictor_id)
            except LabelDPError as error:
                record = event("work-waits", work=predictor_id, code=error.code)
                log.warning("predictor %s waits: %s", predictor_id, error.code, extra=record)
                failure = error
            except Exception as error:
                failure = error  # a bug with one must not keep the others waiting
        if failure is not None:
            raise failure
        return ready

    def train(self, predictor_id: str) -> bool:
        """Learn from the sealed labels, and store the state beside them.

        Returns False if another process is training it, it is done, or the labels changed meanwhile. The same work
        again has the same result: nothing is drawn. Refusals depend on features alone.
        """
        with self.leases.hold(f"predictor {predictor_id}") as acquired:
            if not acquired:
                return False
            waiting = self.database.read("predictor.training", lambda c: self._waiting(c, predictor_id))
            if waiting is None:
                return False
            predictor, population, sealed = waiting
            key = f"{predictor.batch}/predictor-{secrets.token_hex(8)}.run"
            try:
                arrays = self._learn(predictor, population, sealed)
            except Unavailable:
                raise
            except LabelDPError as refusal:
                self.database.write("predictor.fail", lambda c, e=refusal: self._fail(c, predictor_id, e))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
                return False
            self.states.put(key, arrays)
            self.database.fault("predictor.trained")
            ready = self.database.write("predictor.ready", lambda c: self._ready(c, predictor, sealed, key))
            if not ready:
                self.vault.delete(key)
            return ready

    def _waiting(
        self, connection: Connection, predictor_id: str
    ) -> tuple[PredictorRecord, Population, list[str]] | None:
        predictor = self.get(connection, predictor_id)
        batch, population = self.batches.get(connection, predictor.batch)
        sealed = [s.key for s in self.batches.segments(connection, batch.id, SEALED)]
        return (predictor, population, sealed) if predictor.state == TRAINING and sealed else None

    def _learn(self, predictor: PredictorRecord, population: Population, sealed: list[str]) -> Any:
        plan, labels = predictor.plan, SealedLabels(self.vault, *sealed)
        key = self.secrets.derive("predictor-parts:" + predictor.id)
        arrays = [
            (codes, positions, (siphash128(ids, key)[0] % np.uint64(plan.parts or 1)).astype(np.int64))
            for ids, codes, positions in self.features.met(labels, predictor.features_key, plan.features)
        ]
        x, y, parts = (np.concatenate([piece[i] for piece in arrays]) for i in range(3))
        if len(y) != plan.n:
            raise Unavailable("The features of the batch are not those that the predictor was made for.")
        return METHODS[plan.method].learn(plan, population.domain, x, y, parts)

    def _ready(self, connection: Connection, predictor: PredictorRecord, sealed: list[str], key: str) -> bool:
        """Check whether the learned state is valid: its labels are neither purged nor rewritten for an erasure
        meanwhile."""
        now = self.batches.segments(connection, predictor.batch, SEALED)
        batch, _ = self.batches.get(connection, predictor.batch)
        if [s.key for s in now] != sealed or batch.state != "sealed":
            return False
        changed = connection.execute(
            sa.update(predictors)
            .where(predictors.c.id == predictor.id, predictors.c.state == TRAINING)
            .values(state=READY, trained=timestamp(self.batches.clock()), state_key=key)
        ).rowcount
        if changed != 1:
            return False
        self.batches.add_segment(connection, predictor.batch, PREDICTOR, key, predictor.plan.n)
        return True

    def _fail(self, connection: Connection, predictor_id: str, refusal: LabelDPError) -> None:
        t = predictors
        values = {"state": FAILED, "problem": problem(refusal)[1]}
        connection.execute(sa.update(t).where(t.c.id == predictor_id, t.c.state == TRAINING).values(**values))

    def retire(self, predictor_id: str, actor: str) -> dict[str, Any]:
        """Retire a predictor: its state is deleted, its answers stay. Again: no effect. Raises NotFound."""

        def end(connection: Connection) -> dict[str, Any]:
            predictor = self.get(connection, predictor_id)
            _, population = self.batches.get(connection, predictor.batch)
            if predictor.state != RETIRED:
                self.batches.retire_predictors(connection, predictor.batch, only=predictor_id)
                details = {"predictor": predictor_id}
                about = (population, predictor.batch, predictor_id)
                self.ledger.note(connection, PREDICTOR_RETIRED, *about, actor, details, audiences=())
            return self.describe(connection, self.get(connection, predictor_id), population)

        description = self.database.write("predictor.retire", end)
        gone = self.database.read("predictor.gone", lambda c: self.get(c, predictor_id)).state_key
        if gone is not None:
            self.vault.delete(gone)  # the row that notes it goes with the next erasure
        return description

    # --- reading ------------------------------------------------------------------------------------------

    def get(self, connection: Connection, predictor_id: str) -> PredictorRecord:
        # an unprintable text is no id, and not every database takes it as a parameter
        query = sa.select(predictors).where(predictors.c.id == predictor_id)
        row = predictor_id.isprintable() and connection.execute(query).first()
        if not row:
            raise NotFound(f"There is no predictor '{predictor_id}'.")
        return _from_row(row)

    def for_audience(
        self, connection: Connection, predictor_id: str, audience: str | None
    ) -> tuple[PredictorRecord, Population]:
        """Return a predictor and its population; `audience` None is the owner. Raises NotFound, also for another
        audience's."""
        predictor = self.get(connection, predictor_id)
        _, population = self.batches.get(connection, predictor.batch)
        if audience is not None and audience not in population.audiences:
            raise NotFound(f"There is no predictor '{predictor_id}'.")
        return predictor, population

    def list(self, connection: Connection, audience: str | None, batch: str | None = None) -> list[dict[str, Any]]:
        """List those of the audience's populations, or (None) all, the newest last."""
        query = sa.select(predictors).order_by(predictors.c.created, predictors.c.id)
        if batch is not None:
            query = query.where(predictors.c.batch == (batch if batch.isprintable() else ""))
        descriptions = []
        for row in connection.execute(query).all():
            predictor = _from_row(row)
            _, population = self.batches.get(connection, predictor.batch)
            if audience is None or audience in population.audiences:
                descriptions.append(self.describe(connection, predictor, population, owner=audience is None))
        return descriptions

    def asked(self, connection: Connection, predictor: PredictorRecord) -> int:
        """Count the queries that the ledger has charged of its cap. One that only a receiver's record shows counts for
        every predictor of the batch."""
        limits = (predictor.id, PREDICTION)
        nano = self.ledger.audit.charged_against(connection, predictor.batch, *limits)
        return -(-nano // predictor.plan.epsilon.nano)

    def answered(self, connection: Connection, predictor_id: str) -> int:
        """Count the different queries that have an answer here."""
        query = sa.select(sa.func.count()).select_from(predictions).where(predictions.c.predictor == predictor_id)
        return int(connection.execute(query).scalar_one())

    def left(self, connection: Connection, predictor: PredictorRecord, population: Population) -> int:
        """Count the new queries that the cap, and other charges to the batch, still allow."""
        if predictor.state != READY:
            return 0
        of_cap = predictor.plan.queries - self.asked(connection, predictor)
        budget = self.ledger.left(connection, population, predictor.batch)
        return max(0, min(of_cap, budget.nano // predictor.plan.epsilon.nano))

    def describe(
        self, connection: Connection, predictor: PredictorRecord, population: Population, *, owner: bool = True
    ) -> dict[str, Any]:
        """Describe it for its owner or, with days only and without its maker, for its audiences."""
        until = None if owner else 10
        by = with_names({"created_by": predictor.created_by if owner else None}, names_of(connection, api_keys))
        return (
            predictor.plan.as_json()
            | by
            | {
                "id": predictor.id,
                "batch": predictor.batch,
                "population": population.id,
                "state": predictor.state,
                "adjacency": METHODS[predictor.plan.method].adjacency,
                "facts": METHODS[predictor.plan.method].facts(predictor.plan).model_dump(),
                "audiences": list(population.audiences),
                "queries_answered": self.asked(connection, predictor),
                "queries_left": self.left(connection, predictor, population),
                "created": predictor.created[:until],
                "trained": predictor.trained and predictor.trained[:until],
                "problem": predictor.problem if owner else None,
            }
        )


def _from_row(row: sa.Row[Any]) -> PredictorRecord:
    return PredictorRecord(**{**row._mapping, "plan": PredictorPlan.from_json(row.plan)})


# The learned state of a predictor, at rest: encrypted under the key of its batch, beside the sealed labels.
#
# It is derived from raw labels, so it never leaves, is stored and protected as they are and is deleted with them.
# Its size in bytes follows from public numbers alone: every array has a fixed shape and type.
Arrays = Mapping[str, npt.NDArray[Any]]


class StateStore:
    """Learned states of predictors, encrypted in the vault."""

    def __init__(self, vault: LabelVault) -> None:
        self.vault = vault

    def put(self, key: str, arrays: Arrays) -> None:
        """Store arrays, durable on return. Raises Unavailable."""
        buffer = io.BytesIO()
        plain: dict[str, Any] = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        np.savez(buffer, **plain)
        self.vault.put_bytes(key, buffer.getvalue())

    def get(self, key: str) -> dict[str, npt.NDArray[Any]]:
        """Load arrays. Raises Unavailable: the state is gone, or was damaged."""
        try:
            plain = self.vault.get_bytes(key)
        except (OSError, Unavailable):
            raise Unavailable("What this predictor learned cannot be read; nothing was charged.") from None
        with np.load(io.BytesIO(plain), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
