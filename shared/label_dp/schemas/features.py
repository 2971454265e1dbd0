"""Declared features: numbers with public ranges, texts with public values."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Field, StrictFloat, StrictInt, StrictStr, Tag

from label_dp.schemas.base import SINGULAR, Ask, Word

FORM = "NAME=LOW:HIGH for a number and its public range, NAME=a,b,c for texts"


class NumberFeature(Ask):
    """Number with a public range."""

    name: str = Field(min_length=1, max_length=200)
    range: list[StrictStr | StrictInt | StrictFloat] = Field(
        min_length=2, max_length=2, description="Public ends; numbers outside are clipped."
    )


class CategoryFeature(Ask):
    """Text with public values."""

    name: str = Field(min_length=1, max_length=200)
    values: list[StrictStr | StrictInt] = Field(min_length=1, max_length=100, description="Others count as missing.")


def _which(value: Any) -> str:
    """Choose the feature's kind by its members: a category has `values`."""
    members = value if isinstance(value, dict) else getattr(value, "__dict__", {})
    return "category" if "values" in members else "number"


Feature = Annotated[
    Annotated[NumberFeature, Tag("number")] | Annotated[CategoryFeature, Tag("category")], Discriminator(_which)
]


def pair(text: str, form: str = "NAME=VALUE") -> tuple[str, str]:
    """Split NAME=VALUE. Raises ValueError with `form`."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(form)
    return name, value


def feature_of(text: str) -> dict[str, str | list[str]]:
    """Parse NAME=LOW:HIGH or NAME=a,b,c. Raises ValueError."""
    name, values = pair(text, FORM)
    ends = values.split(":")
    return {"name": name, "range": ends} if len(ends) == 2 else {"name": name, "values": values.split(",")}


# as a member: a column each of the table of features
Declared = Annotated[list[Feature], Word("--feature", SINGULAR, read=feature_of, help=f"{FORM}; repeatable.")]
OF_TABLE = "Columns of the table of features: numbers by their public `range`, texts by their `values`."


def number_of(text: str) -> dict[str, str | list[str]]:
    """Parse NAME=LOW:HIGH. Raises ValueError."""
    feature = feature_of(text)
    if "range" not in feature:
        raise ValueError("NAME=LOW:HIGH; its features are numbers with a range")
    return feature
