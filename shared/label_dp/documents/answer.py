"""Signed result of one charged computation on a sealed batch: its parameters, its cost, and its result. The answer's
kind defines parameters and result (`label_dp.companions.kinds`). An unknown kind is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from label_dp.documents.bundle import open_file
from label_dp.documents.members import Strict, Text
from label_dp.documents.signed import MAX_ENVELOPE_BYTES, ChargedDocument
from label_dp.documents.signing import ANSWER_TYPE
from label_dp.errors import InvalidFile, MalformedAnswer, VerificationFailed


class AnswerMechanism(Strict):
    """Mechanism of an answer. `facts`: public numbers that a reader needs, as texts or whole numbers."""

    name: Text
    source: str = Field(default="", max_length=400)
    facts: dict[str, str | int | bool | None] = Field(default_factory=dict)


class Answer(ChargedDocument):
    """Signed answer. Without its random `salt`, a holder of its digest (in an audit export) could guess the
    document."""

    FORMAT: ClassVar[str] = "label-dp-answer/1"
    TYPE: ClassVar[str] = ANSWER_TYPE
    NOUN: ClassVar[str] = "answer"
    MALFORMED: ClassVar[type[VerificationFailed]] = MalformedAnswer

    format: Literal["label-dp-answer/1"] = "label-dp-answer/1"
    kind: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,39}$")]
    parameters: dict[str, Any]
    mechanism: AnswerMechanism
    result: dict[str, Any]
    salt: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.domain.nominal:
            raise ValueError("more than two classes have no order, and no answers")
        return self


def read_answer(path: Path) -> bytes:
    """Read the envelope in a file, unverified. Raises InvalidFile."""
    try:
        with open_file(path) as file:
            return file.read(MAX_ENVELOPE_BYTES + 1)
    except OSError as error:
        raise InvalidFile(f"'{path}' cannot be read ({error.strerror}).") from None


def read_answers(path: Path) -> list[bytes]:
    """Read the envelopes in a file, one a line, unverified. Raises InvalidFile."""
    try:
        with path.open("rb") as file:
            lines = [line.strip() for line in iter(lambda: file.readline(MAX_ENVELOPE_BYTES + 1), b"")]
    except OSError as error:
        raise InvalidFile(f"'{path}' cannot be read ({error.strerror}).") from None
    if not any(lines):
        raise InvalidFile(f"'{path}' holds no signed answer.")
    return [line for line in lines if line]
