"""Signed document: canonical JSON in a DSSE envelope, parsed only after its signature was verified.

`Document` is the base of all signed documents; `ChargedDocument` of those computed from labels and charged: messages
and answers. Every member is always there: one that does not apply is null, "0" or empty. Every number that is not whole
is a decimal string, so that the canonical bytes have one spelling. FORMAT.md describes all of it.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal, Self

import rfc8785
from pydantic import Field, PlainSerializer, PlainValidator, ValidationError, model_validator

from label_dp import errors
from label_dp.documents import members
from label_dp.documents.canonical import canonical_bytes, digest, parse_canonical
from label_dp.documents.signing import SigningKey, VerifyingKey, open_envelope
from label_dp.domain import Domain
from label_dp.privacy import NO_DELTA, PrivacyUnit
from label_dp.schemas.json_types import JsonObject

MAX_BYTES = 1 << 20  # of a message's manifest or an answer
MAX_ENVELOPE_BYTES = MAX_BYTES * 3 // 2
RANDOMNESS = (
    "AES-256-CTR keystreams under fresh keys of the operating system, discarded after use: ε is exact for ideal random "
    "bits and computational for this cipher"
)


def _domain(value: Any) -> Domain:
    if not isinstance(value, Domain | dict):
        raise ValueError("a domain has a range, values or names")
    domain = value if isinstance(value, Domain) else Domain.from_json(value)
    domain.check_spelling(domain.as_json() if domain is value else value)
    return domain


Labels = Annotated[
    Domain,
    PlainValidator(_domain, json_schema_input_type=dict[str, Any]),
    PlainSerializer(Domain.as_json, return_type=dict[str, Any]),
]


class Document(members.Strict):
    """Base of signed documents. `FORMAT` is the value of `format`, name and major version; `TYPE` the envelope's
    payload type.

    `NOUN` and `MALFORMED` are the name and class of its errors; `MOST_ENVELOPE` is the largest envelope in bytes.
    """

    FORMAT: ClassVar[str]
    TYPE: ClassVar[str]
    NOUN: ClassVar[str]
    MALFORMED: ClassVar[type[errors.VerificationFailed]] = errors.MalformedManifest
    MOST_ENVELOPE: ClassVar[int] = MAX_ENVELOPE_BYTES
    format: str

    def document(self) -> JsonObject:
        """Return the signed members."""
        return self.model_dump(mode="json")

    def payload(self) -> bytes:
        """Serialise to canonical bytes. Raises the malformed kind if they are too many."""
        data = canonical_bytes(self.document())
        if len(data) > self.MOST_ENVELOPE * 2 // 3:
            raise self.MALFORMED(f"The {self.NOUN} would be larger than {self.MOST_ENVELOPE * 2 // 3} bytes.")
        return data

    def sign(self, key: SigningKey) -> bytes:
        """Sign `payload`; returns the envelope."""
        return key.envelope(self.TYPE, self.payload())

    @classmethod
    def from_payload(cls, payload: bytes) -> Self:
        """Parse *already verified* bytes. Raises the malformed kind or UnsupportedVersion."""
        if len(payload) > cls.MOST_ENVELOPE * 2 // 3:
            raise cls.MALFORMED(f"The {cls.NOUN} is larger than {cls.MOST_ENVELOPE * 2 // 3} bytes.")
        try:
            data = parse_canonical(payload)
            cls._check_format(data)
            instance = cls.model_validate(data)
        except ValidationError as error:
            raise cls.MALFORMED(f"The {cls.NOUN} is malformed ({first_error(error)}).") from None
        except (errors.InvalidDomain, errors.InvalidEpsilon, errors.MalformedManifest) as error:
            raise cls.MALFORMED(f"The {cls.NOUN} is malformed: {error.detail}") from None
        if instance.document() != data:
            raise cls.MALFORMED(f"The {cls.NOUN} is malformed: a member is missing.")
        return instance

    @classmethod
    def opened(cls, envelope: bytes, key: VerifyingKey) -> tuple[Self, str]:
        """Verify and parse an envelope in the order of trust of `shared/README.md`; returns (document, SHA-256 of its
        payload). Raises the VerificationFailed kind of the broken rule."""
        try:
            payload = open_envelope(envelope, key, cls.TYPE, max_bytes=cls.MOST_ENVELOPE)
        except errors.MalformedManifest as error:
            raise cls.MALFORMED(error.detail) from None
        return cls.from_payload(payload), digest(payload)

    @classmethod
    def envelope_bytes(cls, envelope: Any) -> bytes:
        """Serialise an envelope received as JSON. Raises the malformed kind."""
        try:
            return canonical_bytes(envelope)
        except (TypeError, ValueError, rfc8785.CanonicalizationError):
            raise cls.MALFORMED(f"The {cls.NOUN} is not a DSSE envelope with exactly one signature.") from None

    @classmethod
    def _check_format(cls, data: Any) -> None:
        stated_format = data.get("format") if isinstance(data, dict) else None
        name, _, _ = cls.FORMAT.rpartition("/")
        version = (
            re.fullmatch(re.escape(name) + "/([1-9][0-9]{0,8})", stated_format)
            if isinstance(stated_format, str)
            else None
        )
        if version is None:
            raise cls.MALFORMED(f"The signed document is not the {cls.NOUN} of format {cls.FORMAT}.")
        if stated_format != cls.FORMAT:
            raise errors.UnsupportedVersion(
                f"The {cls.NOUN} has format {stated_format}, and this software reads {cls.FORMAT}: upgrade it."
            )


class ChargedDocument(Document):
    """Base of charged documents. `epsilon_spent`, `delta_spent` and `unit` include this document. `n` is the size of
    the batch, all of which was charged. `adjacency` defines neighbouring data sets."""

    IN_CHAIN: ClassVar[bool] = True
    id: members.Id
    batch: members.Id
    population: members.PopulationRef
    audiences: members.Audiences
    key_id: members.KeyId
    created: members.Day
    n: int = Field(ge=1, le=1 << 40)
    domain: Labels
    out_of_domain: Literal["clip", "refuse"]
    missing_label: str | None
    epsilon: members.Split
    epsilon_spent: members.ExactEpsilon
    epsilon_lifetime: members.ExactEpsilon
    delta_spent: members.ExactDelta = NO_DELTA
    delta_lifetime: members.ExactDelta = NO_DELTA
    unit: members.Unit = members.Unit()
    chain_head: members.ChainHead | None  # of its labels party; None where no chain has a charge for it
    adjacency: members.Text
    randomness: str = RANDOMNESS

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if (self.chain_head is None) == self.IN_CHAIN:
            raise ValueError(f"a {self.NOUN} states the head of its labels party's chain if it is charged there")
        if not self.epsilon.total <= self.epsilon_spent <= self.epsilon_lifetime:
            raise ValueError(f"ε of this {self.NOUN} ≤ ε spent ≤ lifetime ε does not hold")
        if not self.epsilon.delta_atto <= self.delta_spent.atto <= self.delta_lifetime.atto:
            raise ValueError(f"δ of this {self.NOUN} ≤ δ spent ≤ lifetime δ does not hold")
        self.unit.check(self.epsilon_spent, self.epsilon_lifetime, self.n, self.missing_label)
        return self

    @property
    def unit_said(self) -> JsonObject:
        """Privacy unit, and ε that all examples of a unit have spent; None if an example is the unit."""
        return self.privacy_unit.as_json() | {
            "epsilon_per_unit": self.unit.epsilon_per_unit,
            "examples_beyond": self.unit.examples_beyond,
        }

    @property
    def privacy_unit(self) -> PrivacyUnit:
        return PrivacyUnit(self.unit.column, self.unit.max_examples)

    @classmethod
    def trusted(cls, envelope: bytes, key: VerifyingKey, audience: str | None) -> tuple[Self, str]:
        """Verify as `opened`, then key id, the last day of the key and audience; `audience` None skips that check."""
        instance, sha256 = cls.opened(envelope, key)
        if instance.key_id != key.id:
            raise cls.MALFORMED(f"The {cls.NOUN} names another signing key than the one that signed it.")
        if key.until is not None and instance.created > key.until:
            raise errors.SignatureInvalid(
                f"The {cls.NOUN} was made on {instance.created}, and its key signs for nothing after {key.until}: it "
                "has expired, was revoked or has handed over to another. Ask its owner which key signs now."
            )
        if audience is not None and audience not in instance.audiences:
            raise errors.AudienceMismatch(
                f"The {cls.NOUN} is not meant for '{audience}'; its sender must name you among its audiences."
            )
        return instance, sha256


def first_error(error: ValidationError) -> str:
    """Describe the first error safely for a terminal: a member may have any name."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ascii(".".join(str(part) for part in first["loc"])[:100])[1:-1] or "as a whole"
    return f"{where}: {first['msg'].removeprefix('Value error, ')}"
