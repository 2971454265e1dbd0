"""Members of signed documents in canonical spelling: ids, days, ε and δ, the audiences, the split, the unit. ε and δ
are parsed once, when the document is read: typed in memory, text in the bytes."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator

from label_dp.privacy import NANO, Delta, Epsilon, EpsilonSplit
from label_dp.schemas.events import EventRule

PER_UNIT = re.compile(r"(0|[1-9][0-9]{0,14})(\.[0-9]{0,8}[1-9])?", re.ASCII)
MOST_EXAMPLES = 1_000_000  # of a unit
SPLIT = frozenset({"clip", "prior", "randomize", "total", "delta"})
Text = Annotated[str, Field(min_length=1, max_length=400)]
Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{1,64}$")]
KeyId = Annotated[str, Field(pattern=r"^ed25519:[0-9a-f]{64}$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_DAY, _IN_CALENDAR = "^[0-9]{4}-[0-9]{2}-[0-9]{2}", AfterValidator(lambda text: datetime.fromisoformat(text) and text)
Day = Annotated[str, Field(pattern=f"{_DAY}$"), _IN_CALENDAR]
Moment = Annotated[str, Field(pattern=_DAY + "(T[0-9]{2}:[0-9]{2}:[0-9]{2}Z)?$"), _IN_CALENDAR]


class Strict(BaseModel):
    """Strict, immutable base of signed members."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _epsilon(value: Any) -> Epsilon:
    return value if isinstance(value, Epsilon) else Epsilon.canonical(value)


def _delta(value: Any) -> Delta:
    return value if isinstance(value, Delta) else Delta.canonical(value)


def _distinct(value: list[str]) -> list[str]:
    if len(set(value)) != len(value) or any(not 1 <= len(a) <= 200 for a in value):
        raise ValueError("audiences are distinct, non-empty names")
    return value


def _parts(value: Any) -> EpsilonSplit:
    if isinstance(value, EpsilonSplit):
        return value
    if not isinstance(value, dict) or value.keys() != SPLIT or not all(isinstance(v, str) for v in value.values()):
        raise ValueError("ε has the parts clip, prior, randomize, their total, and δ")
    split = EpsilonSplit.from_json(value)
    if split.as_json() != value:
        raise ValueError("the parts of ε are decimal numbers in their one spelling")
    return split


def _per_unit(value: str | None) -> str | None:
    if value is not None and PER_UNIT.fullmatch(value) is None:
        raise ValueError("ε per unit is a decimal number in its one spelling")
    return value


_text = PlainSerializer(str, return_type=str)
ExactEpsilon = Annotated[Epsilon, PlainValidator(_epsilon, json_schema_input_type=str), _text]
ExactDelta = Annotated[Delta, PlainValidator(_delta, json_schema_input_type=str), _text]
Split = Annotated[
    EpsilonSplit,
    PlainValidator(_parts, json_schema_input_type=dict[str, str]),
    PlainSerializer(EpsilonSplit.as_signed, return_type=dict[str, str]),
]
Audiences = Annotated[list[str], Field(min_length=1, max_length=1000), AfterValidator(_distinct)]


class ChainHead(Strict):
    """Newest day of a party's audit chain, and the digest of that day's first event: it commits to all before."""

    day: Day
    digest: Sha256


class PopulationRef(Strict):
    """Population of a document."""

    id: Id
    name: Text
    label: Text
    events: EventRule | None = None  # by which labels were made of conversion events


class Unit(Strict):
    """Privacy unit: an example, or a unit named by a column, with at most `max_examples`."""

    kind: Literal["example", "unit"] = "example"
    column: str | None = None
    max_examples: int | None = Field(default=None, ge=1, le=MOST_EXAMPLES)
    epsilon_per_unit: Annotated[str | None, AfterValidator(_per_unit)] = None
    examples_beyond: int | None = Field(default=None, ge=0)  # examples of the batch above `max_examples`, without label

    def check(self, spent: Epsilon, lifetime: Epsilon, n: int, missing_label: str | None) -> None:
        """Raise ValueError unless ε per unit is `max_examples` times an ε between this batch's spent and the lifetime,
        and `examples_beyond` is possible."""
        members = (self.column, self.max_examples, self.epsilon_per_unit, self.examples_beyond)
        if len({self.kind == "example", *(member is None for member in members)}) != 1:
            raise ValueError("a unit has a column, a number of examples and an ε, and an example has none of them")
        if self.max_examples is None or self.epsilon_per_unit is None or self.examples_beyond is None:
            return
        if self.examples_beyond > (0 if missing_label is None else n):
            raise ValueError("more examples are beyond the bound of a unit than can be without their label")
        whole, _, rest = self.epsilon_per_unit.partition(".")
        each, over = divmod(int(whole + rest.ljust(len(str(NANO)) - 1, "0")), self.max_examples)
        if over or not spent.nano <= each <= lifetime.nano:
            raise ValueError("ε per unit does not follow from what its examples may have spent")
