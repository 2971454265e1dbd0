"""Answers as what an audience can have accepted and sends a receipt of."""

from __future__ import annotations

from sqlalchemy.engine import Connection

from labels_party.answers.answers import Answers
from labels_party.release.receipts import LookUp, Published, require_published
from shared.errors import NotFound


def published_answer(answers: Answers) -> LookUp:
    def look(connection: Connection, answer_id: str, audience: str) -> Published:
        answer = answers.get(connection, answer_id)
        if audience not in answer.audiences:
            raise NotFound(f"There is no answer '{answer_id}'.")
        require_published("Answer", answer.id, answer.state)
        _, population = answers.population_of(connection, answer)
        subject = answers.ledger.subject(population, answer.batch, answer.id)
        return Published(subject, str(answer.sha256), answer.kind)

    return look
