"""The input of a kind's check: an answer whose other members were checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from .costs import check_charge
from .domains import Domain
from .exact import NANO
from .refusal import refuse


@dataclass(frozen=True)
class Answer:
    """`split`: nano-ε of clip, prior and randomize, and atto-δ. `facts`: of the mechanism."""

    answer: dict[str, Any]
    domain: Domain
    split: list[int]
    facts: dict[str, Any]

    @property
    def n(self) -> int:
        return int(self.answer["n"])

    @property
    def parameters(self) -> Any:
        return self.answer["parameters"]

    @property
    def result(self) -> Any:
        return self.answer["result"]

    @property
    def epsilon(self) -> Fraction:
        """That of the answer."""
        return Fraction(self.split[2], NANO)

    def check(self, epsilon: Fraction, delta: Fraction, adjacency: str) -> None:
        """Refuses where ε and δ are not those of the parameters, or neighbours not those of the kind."""
        check_charge(self.split, epsilon, delta)
        if self.answer["adjacency"] != adjacency:
            refuse("neighbouring data sets are others than those of this kind")


class Kind(NamedTuple):
    """A kind of answer. `check` says what it checked in a line, or refuses."""

    name: str
    check: Callable[[Answer], str]
