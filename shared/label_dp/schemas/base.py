"""Base of all request schemas, and the names of members on the command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo


class Ask(BaseModel):
    """Strict, immutable request: a number is a JSON number and true is `true`, never a text that Python would read as
    one. Members hold the values as written; rules that need a population or a batch are checked by its service."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


class QueryAsk(Ask):
    """Request in the query of a URL, where everything is text."""

    model_config = ConfigDict(strict=False)


def whole(example: dict[str, Any]) -> ConfigDict:
    """Return a configuration with a complete example body: examples of single members do not show which go together."""
    return ConfigDict(json_schema_extra={"examples": [example]})


@dataclass(frozen=True)
class Word:
    """Part of a member's `Annotated` for the command line. Without one its option is its name in kebab case.

    `name`: another option, or NO_OPTION, and `why`. `expert`: shown in a panel of its own. `read`: parses each value
    that a person writes; raises ValueError with the expected form. `help`: text of the command instead of the
    description. `to`: destination of the member: an option of the mechanism, or a member of the manifest.
    """

    name: str = ""
    why: str = ""
    expert: bool = False
    read: Callable[[str], Any] | None = None
    help: str = ""
    to: Literal["", "mechanism", "manifest"] = ""


EXPERT = Word(expert=True)
NO_OPTION = "none"  # name of a Word
SINGULAR = "an option that is repeated names one"


def word_of(field: FieldInfo) -> Word:
    """Return the Word of a member."""
    return next((part for part in field.metadata if isinstance(part, Word)), Word())


def names_to(schema: type[Ask], where: str) -> list[str]:
    """List the members with this destination."""
    return [name for name, field in schema.model_fields.items() if word_of(field).to == where]


def members_to(request: Ask, where: str) -> dict[str, Any]:
    """Map the members with this destination to their values."""
    return {name: getattr(request, name) for name in names_to(type(request), where)}


def option_of(name: str, field: FieldInfo) -> str:
    """Return the option of a member: `--prior-epsilon` of `prior_epsilon`, unless a Word names another."""
    return word_of(field).name or "--" + name.replace("_", "-")
