"""The base of everything that can be asked for, and what a member is called on the command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo


class Ask(BaseModel):
    """Strict: a number is a JSON number and true is `true`, not a text that Python would read as one. Immutable.

    Members hold what was written; what needs a population or a batch to be judged is judged where it is known.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


class QueryAsk(Ask):
    """Asked for in the query of a URL, where everything is text."""

    model_config = ConfigDict(strict=False)


def whole(example: dict[str, Any]) -> ConfigDict:
    """With a body that can be sent as it stands: examples of single members do not show which go together."""
    return ConfigDict(json_schema_extra={"examples": [example]})


@dataclass(frozen=True)
class Word:
    """Of a member, on the command line: a part of its `Annotated`. Without one its option is its name in kebab case.

    `name`: another option, or NO_OPTION, and `why`. `expert`: shown in a panel of its own. `read`: from what a person
    writes to the member, for each value where it is repeatable; raises ValueError with the form that was wanted.
    `help`: where a command takes more, or less, than the description says. `to`: where the member goes by itself, as an
    option of the mechanism, or under its own name into the manifest.
    """

    name: str = ""
    why: str = ""
    expert: bool = False
    read: Callable[[str], Any] | None = None
    help: str = ""
    to: Literal["", "mechanism", "manifest"] = ""


EXPERT = Word(expert=True)
NO_OPTION = "none"  # as the name of a Word
SINGULAR = "an option that is repeated names one"


def word_of(field: FieldInfo) -> Word:
    return next((part for part in field.metadata if isinstance(part, Word)), Word())


def names_to(schema: type[Ask], where: str) -> list[str]:
    """Of the members that go there by themselves."""
    return [name for name, field in schema.model_fields.items() if word_of(field).to == where]


def members_to(asked: Ask, where: str) -> dict[str, Any]:
    """The members that go there by themselves, by name."""
    return {name: getattr(asked, name) for name in names_to(type(asked), where)}


def option_of(name: str, field: FieldInfo) -> str:
    """The option of a member: `--prior-epsilon` of `prior_epsilon`, unless a Word says otherwise."""
    return word_of(field).name or "--" + name.replace("_", "-")
