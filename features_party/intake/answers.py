"""Accepting a signed answer (invariant 7): verify, write its ε to our own audit store, and only then anything else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

import shared.message.kinds  # noqa: F401 - registers what an answer may be
from features_party.intake.accept import MAX_SUBJECT, payload_of, plain_name, record_second
from features_party.intake.pinned import PinnedKeys
from features_party.intake.receipts import Receipts
from features_party.storage import tables
from features_party.storage.home import Home, write_durably
from features_party.storage.paging import Listing, Page, select_page
from shared.audit.events import ANSWER_ACCEPTED, Event, Subject
from shared.audit.store import AuditStore
from shared.errors import Conflict, InvalidFile, MalformedAnswer, NotFound, ReplayConflict
from shared.message.answer import Answer, read_answer, trusted_answer
from shared.message.calibration import CALIBRATION, Calibration
from shared.message.canonical import digest
from shared.message.signing import VerifyingKey
from shared.service.database import Database

t = tables.answers
SHOWN = [c for c in t.c if c.name != "file"]


@dataclass(frozen=True)
class SignedAnswer:
    """A verified answer; `digest` is the SHA-256 of its payload, `envelope` what was signed.

    `kept`: it is accounted for, and among our own; `fresh`: just now, not before.
    """

    answer: Answer
    digest: str
    envelope: bytes
    kept: bool = False
    fresh: bool = False

    def calibration(self) -> Calibration:
        """Raises MalformedAnswer for an answer of another kind."""
        if self.answer.kind != CALIBRATION:
            raise MalformedAnswer(f"Answer '{self.answer.answer}' is a {self.answer.kind}; a {CALIBRATION} is needed.")
        return Calibration(self.answer, self.digest, self.envelope)

    def summary(self) -> dict[str, Any]:
        """What a person or program wants to know of it; all public."""
        answer = self.answer
        return {
            "answer": answer.answer,
            "kind": answer.kind,
            "batch": answer.batch,
            "population": answer.population.id,
            "population_name": answer.population.name,
            "label": answer.population.label,
            "audiences": list(answer.audiences),
            "n": answer.n,
            "domain": str(answer.read_domain()),
            "parameters": answer.parameters,
            "mechanism": answer.mechanism.name,
            "result": answer.result,
            "epsilon": dict(answer.epsilon),
            "epsilon_spent": answer.epsilon_spent,
            "epsilon_lifetime": answer.epsilon_lifetime,
            "unit": answer.privacy_unit.as_json(),
            "adjacency": answer.adjacency,
            "created": answer.created,
            "key_id": answer.key_id,
            "document_digest": self.digest,
        }


@dataclass(frozen=True)
class AnswerIntake:
    """`name` is our own among audiences. The envelopes of accepted answers lie in `answers/` of the home."""

    database: Database
    audit: AuditStore
    home: Home
    pinned: PinnedKeys
    name: str
    receipts: Receipts

    def verify(self, envelope: bytes, labels_key: VerifyingKey | None = None) -> SignedAnswer:
        """Check without writing anything. Raises the VerificationFailed of the rule that was broken."""
        key = labels_key or self.pinned.for_envelope(envelope)
        return SignedAnswer(*trusted_answer(envelope, key, self.name), envelope)

    def accept(self, envelope: bytes, labels_key: VerifyingKey | None = None, actor: str = "cli") -> SignedAnswer:
        """Verify, account for and keep an answer; safe to repeat, also after a crash. The same answer with the same
        payload is accepted already: no second event.

        Raises VerificationFailed kinds (ReplayConflict: this key's answer id is known with another document, and that
        it came is on record).
        """
        found = self.verify(envelope, labels_key)
        event = accepted_event(found.answer, found.digest, actor)
        file = f"{plain_name(found.answer.answer, found.digest)}.dsse.json"
        fresh = self.database.write("answer.accept", lambda c: self._record(c, found, file, event))
        if fresh is None:
            raise ReplayConflict(
                f"Answer '{found.answer.answer}' was accepted before with another document. An answer is computed "
                "once; ask the labels party why there are two."
            )
        write_durably(self.home.answers / file, envelope)
        return SignedAnswer(found.answer, found.digest, envelope, kept=True, fresh=fresh)

    def open(self, name: str) -> SignedAnswer:
        """An accepted answer by its id or the digest of its document, from our own copy.

        Raises NotFound, Conflict (labels parties chose the same id), MalformedAnswer, InvalidFile.
        """
        query = sa.select(t.c.digest, t.c.file).where((t.c.answer == name) | (t.c.digest == name)).limit(1000)
        rows = self.database.read("answer.open", lambda c: c.execute(query).all())
        # a digest cannot be chosen, an id that looks like one can
        rows = [row for row in rows if row.digest == name] or rows
        if not rows:
            raise NotFound(f"No answer '{name}' was accepted here; pull or upload it first.")
        if len(rows) > 1:
            raise Conflict(
                f"{len(rows)} labels parties have an answer '{name}'; name it by the digest of its document, as the "
                "list of answers shows it."
            )
        return _stored(self.home.answers / rows[0].file, rows[0].digest)

    def list(self) -> list[dict[str, Any]]:
        """The accepted answers, newest last."""
        query = sa.select(*SHOWN).order_by(t.c.accepted, t.c.answer)
        rows = self.database.read("answer.list", lambda c: c.execute(query).all())
        return [dict(row._mapping) for row in rows]

    def page(self, page: Page) -> Listing:
        """Accepted answers in pages, by the time they were accepted."""
        query = sa.select(*SHOWN)
        return self.database.read("answer.page", lambda c: select_page(c, query, t.c.accepted, t.c.digest, page))

    def _record(self, connection: Connection, found: SignedAnswer, file: str, event: Event) -> bool | None:
        """Whether it is new; None: it is another document of an answer that we know, which is on record now."""
        answer = found.answer
        # a labels party chooses its ids, so they say nothing about another's
        same = (t.c.key_id == answer.key_id) & (t.c.answer == answer.answer)
        known = connection.execute(sa.select(t.c.digest).where(same)).scalar()
        if known is not None:
            if known != found.digest:
                record_second(self.audit, connection, event, known)
                return None
            return False
        placed = self.receipts.append(connection, event)
        connection.execute(
            sa.insert(t).values(
                key_id=answer.key_id,
                answer=answer.answer,
                digest=found.digest,
                kind=answer.kind,
                population=answer.population.id,
                population_name=answer.population.name,
                batch=answer.batch,
                n=answer.n,
                epsilon=dict(answer.epsilon),
                file=file,
                accepted=placed.time,
            )
        )
        return True


def accepted_event(answer: Answer, document_digest: str, actor: str) -> Event:
    """What our audit store keeps of an answer: its exact ε split and what it is about. Raises MalformedAnswer."""
    population = answer.population
    for what, value in (("answer", answer.answer), ("batch", answer.batch), ("population", population.id)):
        if len(value) > MAX_SUBJECT:
            raise MalformedAnswer(f"The {what} id of the answer is longer than {MAX_SUBJECT} characters.")
    return Event(
        kind=ANSWER_ACCEPTED,
        subject=Subject(population.id, population.name, population.label, answer.batch, answer.answer),
        split=answer.split,
        unit=answer.privacy_unit,
        audiences=tuple(answer.audiences),
        actor=actor,
        details={
            "answer": answer.kind,
            "document_digest": document_digest,
            "key_id": answer.key_id,
            "n": answer.n,
            "mechanism": answer.mechanism.name,
            "epsilon_spent": answer.epsilon_spent,
            "epsilon_lifetime": answer.epsilon_lifetime,
        },
    )


def _stored(path: Path, document_digest: str) -> SignedAnswer:
    """Our own copy: its signature was verified at intake, its digest is in our database."""
    try:
        envelope = read_answer(path)
    except InvalidFile:
        envelope = b""
    payload = payload_of(envelope)
    if digest(payload) != document_digest:
        raise MalformedAnswer(f"The stored answer '{path.name}' is missing or was changed; accept the answer again.")
    return SignedAnswer(Answer.from_payload(payload), document_digest, envelope, kept=True)
