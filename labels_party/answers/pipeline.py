"""Answers as charged work: compute a document, sign it, publish it.

Space for the largest document is reserved first, so that a full disk does not depend on what was drawn.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from labels_party.answers.answers import COMPUTING, Answers, StoredAnswer
from labels_party.answers.kind import AnswerJob, AnswerKind, Computed
from labels_party.attempts.attempts import TAKEN, Attempts, Lease
from labels_party.attempts.identity import Workplace
from labels_party.budget.populations import Population
from labels_party.labels.batches import Batch, timestamp
from labels_party.labels.seal import SealedLabels
from labels_party.labels.standing import FAILED, PUBLISHED
from labels_party.labels.vault import LabelVault
from labels_party.notify.outbox import ANSWER_FAILED, ANSWER_PUBLISHED
from labels_party.release.engine import reserve
from labels_party.storage.files import INPUTS, LEFTOVER_SECONDS, Home
from labels_party.storage.secrets import Secrets
from labels_party.storage.tables import answers as answers_table
from shared.audit import events
from shared.errors import LabelDPError, Unavailable
from shared.message.answer import MAX_ENVELOPE_BYTES, Answer, trusted_answer
from shared.message.canonical import digest
from shared.message.manifest import PopulationRef, Unit
from shared.message.prediction import PREDICTION
from shared.message.signing import ANSWER_TYPE, SigningKey
from shared.privacy import delta_string
from shared.service.folders import fsync_folder

RESERVED = 4 * MAX_ENVELOPE_BYTES  # what the database may take for the largest envelope, its log included


class AnswerPipeline(Attempts[StoredAnswer]):
    """`kinds` by name."""

    name = "answer"
    table = answers_table
    working = COMPUTING
    log = logging.getLogger("label_dp.answers")

    def __init__(
        self,
        answers: Answers,
        kinds: Mapping[str, AnswerKind],
        vault: LabelVault,
        secrets_: Secrets,
        key: SigningKey,
        home: Home,
        workplace: Workplace,
        lease_seconds: float,
    ) -> None:
        super().__init__(answers.database, answers.batches, answers.ledger, workplace, lease_seconds)
        self.answers, self.kinds, self.vault, self.secrets, self.key = answers, kinds, vault, secrets_, key
        self.home = home

    def waiting(self, connection: Connection) -> list[StoredAnswer]:
        return self.answers.working(connection)

    def get(self, connection: Connection, work_id: str) -> StoredAnswer:
        return self.answers.get(connection, work_id)

    def about(self, connection: Connection, work: StoredAnswer) -> tuple[Batch, Population]:
        return self.answers.population_of(connection, work)

    def run(self, work_id: str) -> bool:
        return self.attempted(work_id, self.compute_and_publish)

    def compute_and_publish(self, lease: Lease[StoredAnswer]) -> None:
        self.database.fault("answer.compute:begin")
        folder = self._folder(lease)
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

    def failed(self, connection: Connection, lease: Lease[StoredAnswer], error: Exception) -> LabelDPError:
        """What went wrong may have depended on labels: the log has its type, and nobody is told more."""
        self.log.error("answer %s: %s", lease.work.id, type(error).__name__)
        known = LabelDPError("The computation failed; its charge is kept. The service's log names the error.")
        details = {"answer": lease.work.kind, "code": known.code, "charge": "kept"}
        self.note(connection, events.ANSWER_FAILED, lease, details, tuple(lease.work.audiences))
        self.answers.tell(connection, ANSWER_FAILED, lease.work.id)
        return known

    def ended(self, lease: Lease[StoredAnswer], outcome: str) -> None:
        """Remove inputs and abandoned attempts; the folder of the last attempt stays, empty: it tells an old copy of
        the database from the one that went on."""
        if outcome == TAKEN:
            shutil.rmtree(self._folder(lease), ignore_errors=True)
        if outcome not in (PUBLISHED, FAILED):
            return
        if lease.work.inputs:
            shutil.rmtree(self.home.answers / lease.work.inputs, ignore_errors=True)
        for folder in self._folder(lease).parent.glob("attempt-*"):
            if folder != self._folder(lease):
                shutil.rmtree(folder, ignore_errors=True)

    def sweep(self) -> int:
        """Remove inputs that a killed process left: those of an answer that has ended, and of over a day ago those that
        no charged answer needs."""
        there = list(self.home.answers.glob(f"{INPUTS}*"))
        if not there:
            return 0
        waiting, ended = self.database.read("answer.inputs", self._inputs)
        removed = 0
        for folder in there:
            with contextlib.suppress(OSError):  # another process may sweep as well
                old = folder.stat().st_mtime < time.time() - LEFTOVER_SECONDS
                if folder.name in ended or (old and folder.name not in waiting):
                    shutil.rmtree(folder)
                    removed += 1
        return removed

    # --- parts --------------------------------------------------------------------------------------------

    def _folder(self, lease: Lease[StoredAnswer]) -> Path:
        return self.home.answers / lease.work.id / f"attempt-{lease.attempt}"

    def _inputs(self, connection: Connection) -> tuple[set[str], set[str]]:
        """Folders of inputs that charged answers wait for, and those of answers that have ended."""
        t = answers_table
        query = sa.select(t.c.request).where(t.c.state.in_((PUBLISHED, FAILED)), t.c.kind != PREDICTION)
        ended = {str(request["inputs"]) for request in connection.execute(query).scalars()}
        return {a.inputs for a in self.waiting(connection)}, ended

    def _compute(self, lease: Lease[StoredAnswer]) -> Computed:
        answer = lease.work
        return self.kinds[answer.kind].compute(
            AnswerJob(
                answer=answer.id,
                population=lease.population,
                labels=SealedLabels(self.vault, self.secrets, lease.sealed_key),
                n=lease.n,
                split=answer.split,
                parameters=answer.parameters,
                inputs=self.home.answers / answer.inputs if answer.inputs else None,
                features=answer.features,
            )
        )

    def _signed(self, lease: Lease[StoredAnswer], computed: Computed) -> tuple[bytes, str]:
        """The envelope, and the SHA-256 of its payload; read back as its receiver will, before anybody sees it."""
        stored, population = lease.work, lease.population
        account, most = self.spent(lease)
        answer = Answer(
            kind=stored.kind,
            answer=stored.id,
            batch=lease.batch.id,
            population=PopulationRef(id=population.id, name=population.name, label=population.label),
            audiences=list(stored.audiences),
            key_id=self.key.public.id,
            created=timestamp(self.answers.batches.clock())[:10],
            n=lease.n,
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

    def _publish(self, connection: Connection, lease: Lease[StoredAnswer], envelope: bytes, sha256: str) -> None:
        self.publish(connection, lease, envelope=envelope, sha256=sha256)
        details = {"answer": lease.work.kind, "sha256": sha256, "n": lease.n}
        self.note(connection, events.ANSWER_PUBLISHED, lease, details, tuple(lease.work.audiences))
        self.answers.tell(connection, ANSWER_PUBLISHED, lease.work.id)
