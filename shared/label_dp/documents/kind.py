"""Kind of answer, declared once: its request, and the reader of its signed result. Commands and clients derive from the
kinds, so their modules import nothing heavy until used."""

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

# definitions of neighbouring data sets, in the words of signed answers
REPLACE_ONE = "replace one example's label; ids, their number and everything that was sent beside them are public"
WHOLE_EXAMPLE = (
    "replace one example, its label and its features; ids, which of them have features, and their number are public"
)
IN_PARTS = (
    "replace one example, its label and its features: which part an example belongs to depends on its id alone, and "
    "ids and their number are public"
)
WALKED = "replace one example, its label and its position; ids and their number are public"
LABEL_ALONE = "replace one example's label; features, ids and their number are taken as given"

P = TypeVar("P", bound=Strict)
R = TypeVar("R", bound=Strict)


class Facts(Strict):
    """Facts that the mechanism of a kind states; none by default."""

    model_config = ConfigDict(defer_build=True)


@dataclass(frozen=True)
class Kind(Generic[P, R]):
    """Kind of answer: its public parameters, its result, and the rule that ties them to the charge.

    `asks`: schema of the request, if there is one, `beside` other data, with the command `verb` instead of its name.
    `facts`: forms of the mechanism's facts; only the rule may decide by them. `brief`: the result for people, if the
    whole is for programs.
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
        """Command that requests it; a client's method has the same name."""
        return self.verb or self.name

    def shown(self, answer: Answer) -> Mapping[str, Any]:
        """Return the result for people."""
        return answer.result if self.brief is None else self.brief(answer)

    def check(self, answer: Answer) -> None:
        """Check parameters and result. Raises MalformedAnswer, or UnsupportedVersion if a newer version may know
        them."""
        from label_dp.documents.signed import first_error

        try:
            parameters, result = (
                self.parameters.model_validate(answer.parameters),
                self.result.model_validate(answer.result),
            )
            self.rule(answer, parameters, result)
        except UnsupportedVersion:
            raise
        except ValidationError as error:
            raise MalformedAnswer(f"The result of the answer is malformed ({first_error(error)}).") from None
        except (LabelDPError, ValueError, TypeError, KeyError, ArithmeticError) as error:
            # texts of the standard library may quote untrusted input
            reason = error.detail if isinstance(error, LabelDPError) else "a member is of the wrong form."
            raise MalformedAnswer(f"The result of the answer is malformed: {reason}") from None

    def trusted(self, envelope: bytes, key: VerifyingKey, audience: str | None) -> tuple[Answer, str]:
        """Verify as `Answer.trusted`, of this kind only."""
        from label_dp.documents.answer import Answer

        answer, sha256 = Answer.trusted(envelope, key, audience)
        if answer.kind != self.name:
            raise MalformedAnswer(f"The signed document is a {answer.kind}; a {self.name} is needed here.")
        self.check(answer)
        return answer, sha256
