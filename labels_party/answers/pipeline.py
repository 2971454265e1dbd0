"""From a charged answer to a published one: lease an attempt, compute, publish where it still counts.

Crash rules as of releases (invariant 2): before transaction 1 nothing exists; between the transactions a new attempt
computes again without a second charge, and nothing of the abandoned one was seen; afterwards the document never
changes. Space for the largest document is reserved first, so that a full disk does not depend on what was drawn.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from labels_party.answers.answers import COMPUTING, FAILED, PUBLISHED, WORKING, Answers, StoredAnswer
from labels_party.answers.kind import AnswerJob, AnswerKind, Computed
from labels_party.budget.ledger import Account
from labels_party.budget.populations import Population
from labels_party.labels.batches import SEALED, Batch, timestamp
from labels_party.labels.seal import SealedLabels
from labels_party.labels.vault import LabelVault
from labels_party.release.engine import reserve
from labels_party.release.lease import WorkerIdentity
from labels_party.release.leases import heartbeat
from labels_party.storage.files import INPUTS, LEFTOVER_SECONDS, Home
from labels_party.storage.secrets import Secrets
from labels_party.storage.tables import answers as answers_table
from shared.audit import events
from shared.errors import LabelDPError, Unavailable
from shared.message.answer import MAX_ENVELOPE_BYTES, Answer, trusted_answer
from shared.message.canonical import digest
from shared.message.manifest import PopulationRef, Unit
from shared.message.signing import ANSWER_TYPE, SigningKey
from shared.privacy import Epsilon, delta_string
from shared.problems import problem
from shared.service.folders import fsync_folder

log = logging.getLogger("label_dp.answers")
TAKEN, UNKNOWN, FREE = "taken", "unknown", "free"
RESERVED = 4 * MAX_ENVELOPE_BYTES  # what the database may take for the largest envelope, its log included


class Fenced(Exception):
    """Another worker took this answer over; what was computed here is thrown away unseen."""


@dataclass(frozen=True)
class Lease:
    answer: StoredAnswer
    batch: Batch
    population: Population
    sealed_key: str
    attempt: int


class AnswerPipeline:
    """`kinds` by name; `worker` gives this process's identity."""

    def __init__(
        self,
        answers: Answers,
        kinds: Mapping[str, AnswerKind],
        vault: LabelVault,
        secrets_: Secrets,
        key: SigningKey,
        home: Home,
        worker: Callable[[], WorkerIdentity],
        lease_seconds: float,
    ) -> None:
        self.answers, self.kinds, self.vault, self.secrets, self.key = answers, kinds, vault, secrets_, key
        self.home, self.worker, self.lease_seconds = home, worker, lease_seconds
        self.database = answers.database
        self._active: set[tuple[str, int]] = set()

    # --- the protocol -------------------------------------------------------------------------------------

    def run_due(self, stopped: Callable[[], bool] = lambda: False) -> int:
        """Run every answer that waits, once; returns how many were published. Raises Unavailable at the end."""
        failure: Exception | None = None
        done = 0
        for answer in self.database.read("answer.waiting", self.answers.working):
            if stopped():
                break
            try:
                done += self.run(answer.id)
            except Unavailable as error:
                log.warning("answer %s waits: %s", answer.id, error.code)
                failure = error
            except LabelDPError as error:
                log.warning("answer %s failed: %s", answer.id, error.code)
            except Exception as error:
                failure = error  # a bug with one answer must not keep the others waiting
        if failure is not None:
            raise failure
        return done

    def run(self, answer_id: str) -> bool:
        """Take one attempt at a charged answer. False if somebody else works on it or it is finished.

        Raises Unavailable for what may pass (disk, randomness): the answer stays charged and can be run again.
        """
        lease = self.database.write("answer.lease", lambda c: self._take(c, answer_id))
        if lease is None:
            return False
        work = (answer_id, lease.attempt)
        self._active.add(work)
        try:
            return self._attempt(lease)
        finally:
            self._active.discard(work)

    def folder(self, answer_id: str) -> Path:
        return self.home.answers / answer_id

    def _attempt(self, lease: Lease) -> bool:
        folder = self.folder(lease.answer.id) / f"attempt-{lease.attempt}"
        try:
            with self._heartbeat(lease):
                self.database.fault("answer.compute:begin")
                self._compute_and_publish(lease, folder)
        except Fenced:
            shutil.rmtree(folder, ignore_errors=True)
            return False
        except BaseException as error:
            outcome = self._abandon(lease, error)
            if isinstance(error, LabelDPError) and outcome in (PUBLISHED, TAKEN):
                # the commit went through although its reply was lost, or we were fenced off
                if outcome == PUBLISHED:
                    self._clean(lease)
                return outcome == PUBLISHED
            raise
        self._clean(lease)
        return True

    def _abandon(self, lease: Lease, error: BaseException) -> str:
        """After a failed attempt: free the answer, or fail it where the failure may have depended on labels."""
        refused = isinstance(error, Exception) and not isinstance(error, Unavailable | MemoryError)
        try:
            outcome = self.database.write(
                "answer.abandon", lambda c: self._settle(c, lease, error if refused else None)
            )
        except LabelDPError:
            return UNKNOWN
        if outcome == FAILED:
            self._clean(lease)
        return outcome

    def _settle(self, connection: Connection, lease: Lease, refusal: BaseException | None) -> str:
        now = self.answers.get(connection, lease.answer.id)
        if now.attempt != lease.attempt or now.state != COMPUTING:
            return PUBLISHED if now.attempt == lease.attempt and now.state == PUBLISHED else TAKEN
        free: dict[str, object] = {"lease_owner": None, "lease_until": None}
        if refusal is not None:
            # what went wrong may have depended on labels: the log has its type, and nobody is told more
            log.error("answer %s: %s", now.id, type(refusal).__name__)
            known = LabelDPError("The computation failed; its charge is kept. The service's log names the error.")
            free |= {"state": FAILED, "problem": problem(known)[1]}
            details = {"answer": now.kind, "code": known.code, "charge": "kept"}
            self._note(connection, events.ANSWER_FAILED, lease, details)
        connection.execute(sa.update(answers_table).where(answers_table.c.id == now.id).values(**free))
        return FAILED if refusal is not None else FREE

    def _take(self, connection: Connection, answer_id: str) -> Lease | None:
        answer, now, mine = self.answers.get(connection, answer_id), self.database.now(connection), self.worker()
        if answer.state not in WORKING:
            return None
        if answer.lease_owner == mine.name:
            # our own name without work behind it: a reply of the database was lost
            if (answer_id, answer.attempt) in self._active:
                return None
        elif mine.holds(answer.lease_owner, answer.lease_until and answer.lease_until - now):
            return None
        attempt, t = answer.attempt + 1, answers_table
        connection.execute(
            sa.update(t)
            .where(t.c.id == answer_id, t.c.attempt == answer.attempt)
            .values(state=COMPUTING, attempt=attempt, lease_owner=mine.name, lease_until=now + self.lease_seconds)
        )
        batch, population = self.answers.population_of(connection, answer)
        (sealed,) = self.answers.batches.segments(connection, batch.id, SEALED)
        return Lease(answer, batch, population, sealed.key, attempt)

    def _compute_and_publish(self, lease: Lease, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, mode=0o700)
            fsync_folder(folder.parent)
            fsync_folder(folder.parent.parent)
            reserved = folder / "reserved"
            try:
                reserve(reserved, RESERVED)
                envelope, sha256 = self._signed(lease, self._compute(lease))
                self.database.fault("answer.compute:done")
            finally:
                reserved.unlink(missing_ok=True)
        except OSError as error:
            raise Unavailable(f"The answer cannot be computed ({error.strerror}); it stays charged.") from None
        self.database.write("answer.publish", lambda c: self._publish(c, lease, envelope, sha256))

    def _compute(self, lease: Lease) -> Computed:
        answer, n = lease.answer, lease.batch.n
        assert n is not None
        return self.kinds[answer.kind].compute(
            AnswerJob(
                answer=answer.id,
                population=lease.population,
                labels=SealedLabels(self.vault, self.secrets, lease.sealed_key),
                n=n,
                split=answer.split,
                parameters=answer.parameters,
                inputs=self.home.answers / answer.inputs if answer.inputs else None,
            )
        )

    def _signed(self, lease: Lease, computed: Computed) -> tuple[bytes, str]:
        """The envelope, and the SHA-256 of its payload; read back as its receiver will, before anybody sees it."""
        stored, population = lease.answer, lease.population
        account, most = self.database.read("answer.spent", lambda c: self._spent(c, lease))
        assert lease.batch.n is not None
        answer = Answer(
            kind=stored.kind,
            answer=stored.id,
            batch=lease.batch.id,
            population=PopulationRef(id=population.id, name=population.name, label=population.label),
            audiences=list(stored.audiences),
            key_id=self.key.public.id,
            created=timestamp(self.answers.batches.clock())[:10],
            n=lease.batch.n,
            domain=population.domain.as_json(),
            out_of_domain=population.out_of_domain,  # type: ignore[arg-type]  # checked when it was declared
            missing_label=population.missing_label,
            parameters=stored.parameters,
            mechanism=computed.mechanism,
            epsilon=stored.epsilon,
            epsilon_spent=str(account.spent),
            epsilon_lifetime=str(population.lifetime),
            delta_spent=delta_string(account.spent_delta),
            delta_lifetime=delta_string(account.lifetime_delta),
            unit=Unit(
                kind="unit" if population.unit.unit_column else "example",
                column=population.unit.unit_column,
                max_examples=population.unit.max_examples,
                epsilon_per_unit=population.unit.bound(most),
            ),
            adjacency=self.kinds[stored.kind].adjacency,
            result=computed.result,
        )
        payload = answer.payload()
        envelope = self.key.sign(ANSWER_TYPE, answer.document())
        trusted_answer(envelope, self.key.public, stored.audiences[0], stored.kind)
        return envelope, digest(payload)

    def _spent(self, connection: Connection, lease: Lease) -> tuple[Account, Epsilon]:
        """What the batch has spent, and the most that any batch of the population has."""
        ledger = self.answers.ledger
        account = ledger.account(connection, lease.population, lease.batch.id)
        return account, ledger.largest(connection, lease.population)

    def _publish(self, connection: Connection, lease: Lease, envelope: bytes, sha256: str) -> None:
        """Transaction 2. Only the attempt that holds the lease may publish, and only once."""
        t = answers_table
        changed = connection.execute(
            sa.update(t)
            .where(
                t.c.id == lease.answer.id,
                t.c.attempt == lease.attempt,
                t.c.state == COMPUTING,
                t.c.lease_owner == self.worker().name,
            )
            .values(
                state=PUBLISHED,
                published=timestamp(self.answers.batches.clock()),
                envelope=envelope,
                sha256=sha256,
                lease_owner=None,
                lease_until=None,
            )
        ).rowcount
        if changed != 1:
            raise Fenced
        details = {"answer": lease.answer.kind, "sha256": sha256, "n": lease.batch.n}
        self._note(connection, events.ANSWER_PUBLISHED, lease, details)

    # --- parts --------------------------------------------------------------------------------------------

    def _note(self, connection: Connection, kind: str, lease: Lease, details: Mapping[str, object]) -> None:
        population = lease.population
        subject = events.Subject(
            population.id, population.name, population.label, lease.batch.id, lease.answer.id, lease.attempt
        )
        audiences = tuple(lease.answer.audiences)
        self.answers.ledger.audit.append(
            connection,
            events.Event(kind, subject, unit=population.unit, audiences=audiences, actor="worker", details=details),
        )

    def _heartbeat(self, lease: Lease) -> contextlib.AbstractContextManager[None]:
        """Keep the lease while working; losing it is noticed at publication by the fencing number."""

        def extend(connection: Connection) -> None:
            t = answers_table
            connection.execute(
                sa.update(t)
                .where(t.c.id == lease.answer.id, t.c.attempt == lease.attempt)
                .values(lease_until=self.database.now(connection) + self.lease_seconds)
            )

        return heartbeat(self.database, "answer.heartbeat", self.lease_seconds / 3, extend)

    def _clean(self, lease: Lease) -> None:
        """Remove inputs and abandoned attempts; the folder of the last attempt stays, empty: it tells an old copy of
        the database from the one that went on."""
        if lease.answer.inputs:
            shutil.rmtree(self.home.answers / lease.answer.inputs, ignore_errors=True)
        for folder in self.folder(lease.answer.id).glob("attempt-*"):
            if folder.name != f"attempt-{lease.attempt}":
                shutil.rmtree(folder, ignore_errors=True)

    def sweep(self) -> int:
        """Remove inputs of over a day ago that no charged answer needs, left by a process that was killed."""
        waiting = {a.inputs for a in self.database.read("answer.waiting", self.answers.working)}
        removed = 0
        for folder in self.home.answers.glob(f"{INPUTS}*"):
            with contextlib.suppress(OSError):  # another process may sweep as well
                if folder.name not in waiting and folder.stat().st_mtime < time.time() - LEFTOVER_SECONDS:
                    shutil.rmtree(folder)
                    removed += 1
        return removed
