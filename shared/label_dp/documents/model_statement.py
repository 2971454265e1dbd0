"""Statement of a model's folder: a features party signs its files, and which documents at what ε they were made from.

It costs no ε: it names digests and facts of public, paid documents (post-processing; Dwork & Roth 2014, proposition
2.1). A model may hold what its features say, so the statement is no permission to publish it.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from label_dp.documents.members import ExactDelta, ExactEpsilon, Id, KeyId, Sha256, Split, Strict
from label_dp.documents.signed import Document


class ModelSource(Strict):
    """Message or answer that a model was made from, by its id and the SHA-256 of its payload; a rehearsal has no ε."""

    id: Id
    digest: Sha256
    key_id: KeyId
    population: Id
    batch: Id
    rehearsal: bool
    epsilon: Split


class ModelEpsilon(Strict):
    """ε and δ of an example of a population by all sources: those of a batch add up, and the largest batch counts."""

    key_id: KeyId
    population: Id
    epsilon_per_example: ExactEpsilon
    delta_per_example: ExactDelta


class ModelStatement(Document):
    """Signed statement of a model's folder. `files` are the SHA-256 of all its other files, by name."""

    FORMAT: ClassVar[str] = "label-dp-model/1"
    TYPE: ClassVar[str] = "application/vnd.label-dp.model+json"
    NOUN: ClassVar[str] = "statement of a model"
    MOST_ENVELOPE: ClassVar[int] = 1 << 24

    format: Literal["label-dp-model/1"] = "label-dp-model/1"
    key_id: KeyId
    files: dict[Annotated[str, Field(pattern=r"^[a-z][a-z.]{0,40}$")], Sha256]
    sources: list[ModelSource]
    epsilon: list[ModelEpsilon]
