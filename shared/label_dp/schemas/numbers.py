"""Numbers in requests: a member keeps them as written, and only `label_dp.numbers` parses them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, StrictFloat, StrictInt
from pydantic_core import PydanticCustomError

from label_dp.numbers import WHOLE, BadSpelling, whole_of


def _whole(value: Any) -> Any:
    try:
        return whole_of(value)
    except BadSpelling:
        raise PydanticCustomError("int_parsing", WHOLE) from None


def text_of(value: str | int | float) -> str:
    """Return a number as text, in its shortest spelling, so that 0.5 and "0.5" are one request."""
    return value if isinstance(value, str) else repr(value)


PLAIN = BeforeValidator(_whole)  # the last part of an Annotated, so that the bounds of the number stay in its schema
Number = str | StrictInt | StrictFloat
PLACES = Field(description="A decimal number with at most 9 places.", examples=["0.5"])
Decimalish = Annotated[Number, AfterValidator(text_of), PLACES]
# the length limits the text only: on the whole member, pydantic would take the length of a number
ShortDecimalish = Annotated[
    Annotated[str, Field(max_length=80)] | StrictInt | StrictFloat, AfterValidator(text_of), PLACES
]
