"""A kind of answer, declared once: what is asked for, and how what was signed is read.

Commands and clients are made of the kinds, so a module of one imports nothing heavy until it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from pydantic import ConfigDict, ValidationError

from label_dp.documents.members import Strict
from label_dp.errors import LabelDPError, MalformedAnswer, UnsupportedVersion
from label_dp.schemas.base import Ask

if TYPE_CHECKING:
    from label_dp.documents.answer import Answer
    from label_dp.documents.signing import VerifyingKey

P = TypeVar("P", bound=Strict)
R = TypeVar("R", bound=Strict)


class Facts(Strict):
    """What the mechanism of a kind of answer states; as it stands, nothing."""

    model_config = ConfigDict(defer_build=True)


@dataclass(frozen=True)
class Kind(Generic[P, R]):
    """A kind of answer: its public parameters, its result, and the rule that ties them to what was charged.

    `asks`: what is asked for of a batch, if it is, `beside` which other data, and by which `verb` if not its name.
    `facts`: forms of what its mechanism states; a reader decides nothing by them, unless the rule does. `brief`: the
    result for people, if the whole is for programs.
    """

    name: str
    parameters: type[P]
    result: type[R]
    rule: Callable[[Answer, P, R], None]
    asks: type[Ask] | None = None
    beside: Literal["nothing", "scores", "features"] = "nothing"
    verb: str = ""
    facts: tuple[type[Facts], ...] = (Facts,)
    brief: Callable[[Answer], Mapping[str, Any]] | None = None

    @property
    def command(self) -> str:
        """The command that asks for it; a client's method has the same name."""
        return self.verb or self.name

    def shown(self, answer: Answer) -> Mapping[str, Any]:
        """The result as people see it."""
        return answer.result if self.brief is None else self.brief(answer)

    def check(self, answer: Answer) -> None:
        """Raises MalformedAnswer, or UnsupportedVersion for what a newer version may know."""
        from label_dp.documents.signed import first_error

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
        from label_dp.documents.answer import Answer

        answer, sha256 = Answer.trusted(envelope, key, audience)
        if answer.kind != self.name:
            raise MalformedAnswer(f"The signed document is a {answer.kind}; a {self.name} is needed here.")
        self.check(answer)
        return answer, sha256
