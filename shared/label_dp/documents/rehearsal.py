"""Rehearsal: a message with made-up labels, for building and sizing a receiver's pipeline before any contract.

Its payload type and format, both signed, differ from a message's: neither can be read as the other. It spends no ε,
because there is no label in it.
"""

from __future__ import annotations

from typing import ClassVar, Final, Literal, Self

from pydantic import model_validator

from label_dp.documents.manifest import Manifest
from label_dp.documents.signing import REHEARSAL_TYPE

MADE_UP = "a rehearsal: labels and noise are made up, no label of anybody is in it, and no ε is spent"
NOT_USED: Final = "not used"


class Rehearsal(Manifest):
    """Manifest of a rehearsal. Its ε is that of the rehearsed channel."""

    FORMAT: ClassVar[str] = "label-dp-rehearsal/1"
    TYPE: ClassVar[str] = REHEARSAL_TYPE
    NOUN: ClassVar[str] = "rehearsal"
    IN_CHAIN: ClassVar[bool] = False

    format: Literal["label-dp-rehearsal/1"] = "label-dp-rehearsal/1"

    @model_validator(mode="after")
    def _made_up(self) -> Self:
        if self.randomness != MADE_UP:
            raise ValueError("a rehearsal says that its labels are made up")
        if self.prior.source != NOT_USED or self.epsilon.clip or self.batch != self.id:
            raise ValueError("a rehearsal has neither a prior nor bounds, and is its own batch")
        return self
