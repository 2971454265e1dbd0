"""Accepting a signed answer (invariant 7): verify, write its ε to our own audit store, and only then anything else."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from sqlalchemy.engine import Connection

from features_party.intake.accept import MAX_SUBJECT, PLAIN
from features_party.intake.pinned import PinnedKeys
from features_party.storage.home import Home, write_durably
from shared.audit.events import ANSWER_ACCEPTED, Event, Subject
from shared.audit.store import AuditStore
from shared.errors import MalformedAnswer, ReplayConflict
from shared.message.answer import Answer
from shared.message.calibration import Calibration, open_calibration
from shared.message.signing import VerifyingKey
from shared.service.database import Database


@dataclass(frozen=True)
class AnswerIntake:
    """`name` is our own among audiences. The envelopes of accepted answers lie in `answers/` of the home."""

    database: Database
    audit: AuditStore
    home: Home
    pinned: PinnedKeys
    name: str

    def verify_calibration(self, envelope: bytes, labels_key: VerifyingKey | None = None) -> Calibration:
        """Check without writing anything. Raises the VerificationFailed of the rule that was broken."""
        return open_calibration(envelope, labels_key or self.pinned.for_envelope(envelope), self.name)

    def accept_calibration(
        self, envelope: bytes, labels_key: VerifyingKey | None = None, actor: str = "cli"
    ) -> tuple[Calibration, bool]:
        """(the calibration, whether it is new to us); safe to repeat. The same answer with the same bytes is accepted
        already: no second event.

        Raises VerificationFailed kinds (ReplayConflict: this key's answer id is known with another document).
        """
        found = self.verify_calibration(envelope, labels_key)
        event = accepted_event(found.answer, found.digest, actor)
        fresh = self.database.write("answer.accept", lambda c: self._record(c, found, event))
        name = found.answer.answer
        plain = name if PLAIN.fullmatch(name) else hashlib.sha256(name.encode()).hexdigest()[:32]
        write_durably(self.home.answers / f"{plain}-{found.digest[:32]}.dsse.json", found.envelope)
        return found, fresh

    def _record(self, connection: Connection, found: Calibration, event: Event) -> bool:
        earlier = self.audit.events(connection, kind=ANSWER_ACCEPTED, release=found.answer.answer)
        # a labels party chooses its ids, so they say nothing about another's
        for known in (e for e in earlier if e.details.get("key_id") == found.answer.key_id):
            if known.details.get("document_digest") != found.digest:
                raise ReplayConflict(
                    f"Answer '{found.answer.answer}' was accepted before with another document. An answer is computed "
                    "once; ask the labels party why there are two."
                )
            return False
        self.audit.append(connection, event)
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
