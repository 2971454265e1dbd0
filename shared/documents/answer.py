"""The signed result of one charged computation on a sealed batch: what was computed, what it cost, and the result.

What parameters and result look like is for the answer's kind to say (`shared.documents.kinds`). A kind that nobody
knows is refused, never guessed at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import Field, ValidationError

from shared.costs.slices import Cost
from shared.documents.bundle import open_file
from shared.documents.members import Strict, Text
from shared.documents.signed import MAX_ENVELOPE_BYTES, Charged, first_error
from shared.documents.signing import ANSWER_TYPE, VerifyingKey
from shared.errors import InvalidFile, LabelDPError, MalformedAnswer, UnsupportedVersion, VerificationFailed

P = TypeVar("P", bound=Strict)
R = TypeVar("R", bound=Strict)


class AnswerMechanism(Strict):
    """`facts`: whatever public numbers of the mechanism a reader needs, as texts or whole numbers."""

    name: Text
    source: str = Field(default="", max_length=400)
    facts: dict[str, str | int | bool | None] = Field(default_factory=dict)


class Answer(Charged):
    """With the random `salt` nobody who sees the document's digest, in an audit export, can find it by guessing."""

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


def check_charge(answer: Answer, cost: Cost, adjacency: str) -> None:
    """Whether an answer states what its public parameters cost, no more and no less, for the neighbours of its kind.

    Raises MalformedAnswer.
    """
    if answer.split != cost.split():
        raise MalformedAnswer("its ε and δ are not what its parameters cost.")
    if answer.adjacency != adjacency:
        raise MalformedAnswer("neighbouring data sets are others than those of its kind.")


@dataclass(frozen=True)
class Kind(Generic[P, R]):
    """A kind of answer: its public parameters, its result, and the rule that ties them to what was charged."""

    name: str
    parameters: type[P]
    result: type[R]
    rule: Callable[[Answer, P, R], None]

    def check(self, answer: Answer) -> None:
        """Raises MalformedAnswer, or UnsupportedVersion for what a newer version may know."""
        try:
            given, said = self.parameters.model_validate(answer.parameters), self.result.model_validate(answer.result)
            self.rule(answer, given, said)
        except UnsupportedVersion:
            raise
        except ValidationError as error:
            raise MalformedAnswer(f"The result of the answer is malformed ({first_error(error)}).") from None
        except (LabelDPError, ValueError, TypeError, KeyError, ArithmeticError) as error:
            # texts of the standard library may quote what a stranger wrote
            told = error.detail if isinstance(error, LabelDPError) else "a member is of the wrong form."
            raise MalformedAnswer(f"The result of the answer is malformed: {told}") from None

    def trusted(self, envelope: bytes, key: VerifyingKey, audience: str | None) -> tuple[Answer, str]:
        """As `Answer.trusted`, of this kind alone."""
        answer, sha256 = Answer.trusted(envelope, key, audience)
        if answer.kind != self.name:
            raise MalformedAnswer(f"The signed document is a {answer.kind}; a {self.name} is needed here.")
        self.check(answer)
        return answer, sha256


def read_answer(path: Path) -> bytes:
    """The envelope in a file, not trusted yet. Raises InvalidFile."""
    try:
        with open_file(path) as file:
            return file.read(MAX_ENVELOPE_BYTES + 1)
    except OSError as error:
        raise InvalidFile(f"'{path}' cannot be read ({error.strerror}).") from None


def read_answers(path: Path) -> list[bytes]:
    """The envelopes in a file, one a line, not trusted yet. Raises InvalidFile."""
    try:
        with path.open("rb") as file:
            found = [line.strip() for line in iter(lambda: file.readline(MAX_ENVELOPE_BYTES + 1), b"")]
    except OSError as error:
        raise InvalidFile(f"'{path}' cannot be read ({error.strerror}).") from None
    if not any(found):
        raise InvalidFile(f"'{path}' holds no signed answer.")
    return [line for line in found if line]
