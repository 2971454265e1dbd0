"""The signed result of one charged computation on a sealed batch, format `label-dp-answer` 1.0.

An answer is one document: what was computed (`kind`, `parameters`), what it cost, and the result itself, at most 1 MiB.
As in the manifest every number that is not a whole number is a decimal string, a reader refuses a newer major version,
and members that a newer minor version added at the top are ignored. What a result of a kind looks like is checked by
what `register` was given for it; a kind that nobody registered is refused, never guessed at.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import rfc8785
from pydantic import Field, ValidationError, model_validator

from shared.domain import Domain
from shared.errors import (
    AudienceMismatch,
    InvalidDomain,
    InvalidEpsilon,
    InvalidFile,
    LabelDPError,
    MalformedAnswer,
    MalformedManifest,
    UnsupportedVersion,
)
from shared.message.bundle import open_file
from shared.message.canonical import canonical_bytes, digest, parse_canonical
from shared.message.manifest import RANDOMNESS, Audiences, Id, Number, PopulationRef, SplitText, Strict, Text, Unit
from shared.message.signing import ANSWER_TYPE, VerifyingKey, open_envelope
from shared.privacy import Epsilon, EpsilonSplit, PrivacyUnit, parse_delta

FORMAT_NAME = "label-dp-answer"
MAJOR, MINOR = 1, 0
MAX_ANSWER_BYTES = 1 << 20
MAX_ENVELOPE_BYTES = MAX_ANSWER_BYTES * 3 // 2
Kind = Field(pattern=r"^[a-z][a-z0-9-]{0,39}$")


class AnswerFormat(Strict):
    name: Literal["label-dp-answer"] = "label-dp-answer"
    major: int = MAJOR
    minor: int = MINOR


class AnswerMechanism(Strict):
    """`facts`: whatever public numbers of the mechanism a reader needs, as texts or whole numbers."""

    name: str = Text
    source: str = Field(default="", max_length=400)
    facts: dict[str, str | int | bool | None] = Field(default_factory=dict)


class Answer(Strict):
    """`epsilon_spent`, `delta_spent` and `unit` include this answer. `n` counts the batch, all of which was charged."""

    format: AnswerFormat = AnswerFormat()
    kind: str = Kind
    answer: str = Id
    batch: str = Id
    population: PopulationRef
    audiences: Audiences
    key_id: str = Field(pattern=r"^ed25519:[0-9a-f]{64}$")
    created: str = Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")
    n: int = Field(ge=1, le=1 << 40)
    domain: dict[str, Any]
    out_of_domain: Literal["clip", "refuse"]
    missing_label: str | None
    parameters: dict[str, Any]
    mechanism: AnswerMechanism
    epsilon: SplitText
    epsilon_spent: str = Number
    epsilon_lifetime: str = Number
    delta_spent: str = Field(default="0", pattern=r"^[0-9](\.[0-9]{1,18})?$")
    delta_lifetime: str = Field(default="0", pattern=r"^[0-9](\.[0-9]{1,18})?$")
    unit: Unit = Unit()
    adjacency: str = Text
    randomness: str = RANDOMNESS
    result: dict[str, Any]

    @model_validator(mode="after")
    def _consistent(self) -> Answer:
        spent, lifetime = Epsilon.parse(self.epsilon_spent), Epsilon.parse(self.epsilon_lifetime)
        if not self.split.total <= spent <= lifetime:
            raise ValueError("ε of this answer ≤ ε spent ≤ lifetime ε does not hold")
        if not self.split.delta_atto <= parse_delta(self.delta_spent) <= parse_delta(self.delta_lifetime):
            raise ValueError("δ of this answer ≤ δ spent ≤ lifetime δ does not hold")
        per_unit, many = self.unit.epsilon_per_unit, self.unit.max_examples
        if per_unit is not None and (many is None or Fraction(per_unit) < many * spent.fraction):
            raise ValueError("ε per unit is less than its examples may have spent together")
        if self.read_domain().as_json() != self.domain:
            raise ValueError("the domain is not in its one spelling")
        return self

    @property
    def split(self) -> EpsilonSplit:
        return EpsilonSplit.from_json(self.epsilon)

    @property
    def privacy_unit(self) -> PrivacyUnit:
        return PrivacyUnit(self.unit.column, self.unit.max_examples)

    def read_domain(self) -> Domain:
        return Domain.from_json(self.domain)

    def document(self) -> dict[str, Any]:
        return self.model_dump(mode="json")

    def payload(self) -> bytes:
        """The canonical bytes. Raises MalformedAnswer for what is too large."""
        data = canonical_bytes(self.document())
        if len(data) > MAX_ANSWER_BYTES:
            raise MalformedAnswer(f"The answer would be larger than {MAX_ANSWER_BYTES} bytes.")
        return data

    @classmethod
    def from_payload(cls, payload: bytes) -> Answer:
        """An answer of a registered kind from *already verified* bytes. Raises MalformedAnswer, UnsupportedVersion."""
        if len(payload) > MAX_ANSWER_BYTES:
            raise MalformedAnswer(f"The answer is larger than {MAX_ANSWER_BYTES} bytes.")
        try:
            data = parse_canonical(payload)
        except MalformedManifest as error:
            raise MalformedAnswer(error.detail) from None
        version = data.get("format") if isinstance(data, dict) else None
        if not isinstance(version, dict) or version.get("name") != FORMAT_NAME:
            raise MalformedAnswer("The signed document is not the answer of a labels party.")
        major, minor = version.get("major"), version.get("minor")
        if type(major) is not int or type(minor) is not int or major < 1 or minor < 0:
            raise MalformedAnswer("The answer has no valid format version.")
        if major > MAJOR:
            raise UnsupportedVersion(
                f"The answer has format version {major}.{minor}, this software reads up to {MAJOR}.x: upgrade it."
            )
        if minor > MINOR:
            data = {name: value for name, value in data.items() if name in cls.model_fields}
        try:
            found = cls.model_validate(data)
            _checked(found)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            where = ascii(".".join(str(part) for part in first["loc"])[:100])[1:-1] or "as a whole"
            raise MalformedAnswer(f"The answer is malformed ({where}: {first['msg']}).") from None
        except (InvalidDomain, InvalidEpsilon) as error:
            raise MalformedAnswer(f"The answer is malformed: {error.detail}") from None
        return found


Check = Callable[[Answer], None]
_KINDS: dict[str, Check] = {}


def register(kind: str, check: Check) -> None:
    """Say how parameters and result of a kind are checked; `check` raises a LabelDPError or ValueError."""
    if _KINDS.setdefault(kind, check) is not check:
        raise ValueError(f"answers of kind '{kind}' are registered already")


def kinds() -> tuple[str, ...]:
    return tuple(sorted(_KINDS))


def _checked(answer: Answer) -> None:
    check = _KINDS.get(answer.kind)
    if check is None:
        raise UnsupportedVersion(
            f"This software does not know answers of kind '{answer.kind}'; a newer version may read it."
        )
    try:
        check(answer)
    except UnsupportedVersion:
        raise
    except (LabelDPError, ValueError, TypeError, KeyError, ArithmeticError) as error:
        # texts of the standard library may quote what a stranger wrote
        why = error.detail if isinstance(error, LabelDPError) else "a member is missing, unknown or of the wrong form."
        raise MalformedAnswer(f"The result of the answer is malformed: {why}") from None


def trusted_answer(
    envelope: bytes, key: VerifyingKey, audience: str | None, kind: str | None = None
) -> tuple[Answer, str]:
    """(answer, SHA-256 of its payload) of an envelope: signature, form, version, key id, audience, kind, in this order.

    `audience` or `kind` None skips that check. Raises the VerificationFailed of the rule that was broken.
    """
    try:
        payload = open_envelope(envelope, key, ANSWER_TYPE, max_bytes=MAX_ENVELOPE_BYTES)
    except MalformedManifest as error:
        raise MalformedAnswer(error.detail) from None
    answer = Answer.from_payload(payload)
    if answer.key_id != key.id:
        raise MalformedAnswer("The answer names another signing key than the one that signed it.")
    if audience is not None and audience not in answer.audiences:
        raise AudienceMismatch(
            f"The answer is not meant for '{audience}'; its sender must name you among its audiences."
        )
    if kind is not None and answer.kind != kind:
        raise MalformedAnswer(f"The signed document is a {answer.kind}; a {kind} is needed here.")
    return answer, digest(payload)


def read_answer(path: Path) -> bytes:
    """The envelope in a file, not trusted yet. Raises InvalidFile."""
    try:
        with open_file(path) as file:
            return file.read(MAX_ENVELOPE_BYTES + 1)
    except OSError as error:
        raise InvalidFile(f"'{path}' cannot be read ({error.strerror}).") from None


def envelope_bytes(envelope: Any) -> bytes:
    """The canonical bytes of an envelope that came as JSON. Raises MalformedAnswer."""
    try:
        return canonical_bytes(envelope)
    except (TypeError, ValueError, rfc8785.CanonicalizationError):
        raise MalformedAnswer("The document is not a DSSE envelope with exactly one signature.") from None
