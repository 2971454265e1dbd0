"""Signed, public description of a message: channel, prior, clipping, and the digest of every file."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PrivateAttr, field_validator, model_validator

from label_dp.channels.base import Channel
from label_dp.channels.registry import channel_from_json
from label_dp.documents.members import ExactEpsilon, Sha256, Strict, Text
from label_dp.documents.signed import ChargedDocument, Labels
from label_dp.documents.signing import MANIFEST_TYPE
from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from label_dp.schemas.base import names_to
from label_dp.schemas.json_types import JsonObject
from label_dp.schemas.release import Release

# a receiver reserves what a manifest states: an id of 512 bytes, a bin, a label and their lengths; footers
FILE_ROW_BYTES, FILE_SLACK = 560, 1 << 18
MAX_FILES = 4096
QUANTILE = re.compile(r"0\.[0-9]{0,8}[1-9]", re.ASCII)
DECLARED, BOUGHT, ESTIMATED = "declared public by the owner", "bought with ε_clip", "estimated"
PRIOR_FILE = "prior.parquet"
SIGNED_SUFFIX = ".dsse.json"  # of signed manifests, so no part may have it
ENVELOPE_FILE = f"manifest{SIGNED_SUFFIX}"  # inside a folder


class FileEntry(Strict):
    """File of the release: `role` message (one or more parts, in order) or prior."""

    role: Literal["message", "prior"]
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")
    bytes: int = Field(ge=1, le=1 << 50)
    rows: int = Field(ge=0, le=1 << 40)
    sha256: Sha256


class MechanismChoice(Strict):
    """Mechanism of a message, and why it was chosen."""

    name: Text
    why: str = Field(default="asked for", max_length=2000)


class PriorRef(Strict):
    """Origin of the prior: estimated with ε_prior, declared by the owner, carried over, uniform, or not used."""

    source: Literal["estimated", "declared public by the owner", "carried over", "uniform", "not used"]
    method: str | None = None
    cells: int | None = Field(default=None, ge=1)
    release: str | None = None


class Clipping(Strict):
    """Clipping bounds bought with ε_clip: `bounds` at `quantiles`, which are ends of the message's domain within the
    owner's `public_domain`. A single quantile is the upper end's."""

    quantiles: list[str] = Field(min_length=1, max_length=2)
    bounds: list[str] = Field(min_length=1, max_length=2)
    epsilon: ExactEpsilon
    public_domain: Labels
    mechanism: Literal["exponential mechanism on ranks"] = "exponential mechanism on ranks"

    @field_validator("quantiles")
    @classmethod
    def _quantiles(cls, value: list[str]) -> list[str]:
        if any(QUANTILE.fullmatch(text) is None for text in value) or sorted({Fraction(t) for t in value}) != [
            Fraction(text) for text in value
        ]:
            raise ValueError("quantiles are decimal numbers between 0 and 1, rising, each spelled in one way")
        return value

    def summary(self) -> JsonObject:
        """Summarise the bounds for people and programs."""
        data = self.model_dump(mode="json", exclude={"public_domain"})
        return data | {"public_domain": str(self.public_domain)}

    def check(self, domain: Domain, epsilon: Epsilon) -> None:
        """Check against `domain` and ε_clip. Raises ValueError and InvalidDomain."""
        first, last = self.public_domain.place(domain)
        ends = [domain.value(0), domain.value(domain.k - 1)]
        if (len(self.quantiles) == 1 and first != 0) or first == last or domain.names:
            raise ValueError("the domain has other ends than those that were bought")
        if self.bounds != [format(end, "f") for end in ends[-len(self.quantiles) :]]:
            raise ValueError("the bounds are not the ends of the domain")
        if not epsilon or self.epsilon != epsilon:
            raise ValueError("ε of the bounds is not the ε_clip of the split")


class Manifest(ChargedDocument):
    """Signed manifest of a message."""

    FORMAT: ClassVar[str] = "label-dp-message/1"
    TYPE: ClassVar[str] = MANIFEST_TYPE
    NOUN: ClassVar[str] = "message"

    format: Literal["label-dp-message/1", "label-dp-rehearsal/1"] = "label-dp-message/1"
    domain_source: Literal["declared public by the owner", "bought with ε_clip"] = "declared public by the owner"
    presence: Literal["id list given before labels counted", "declared public by the owner"]
    mechanism: MechanismChoice
    loss: Text
    channel: dict[str, Any]
    expected_loss: str | None
    prior: PriorRef
    clipping: Clipping | None = None
    adjacency: Literal["replace one example's label"] = "replace one example's label"
    files: Annotated[list[FileEntry], Field(min_length=1, max_length=MAX_FILES)]
    _channel: Channel | None = PrivateAttr(default=None)  # cached: checking is slow for large domains

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.format != self.FORMAT:
            raise ValueError(f"a {self.NOUN} has the format {self.FORMAT}")
        names = [f.name.lower() for f in self.files]  # some file systems ignore case
        parts = self.message_files
        if (
            any(name.endswith(SIGNED_SUFFIX) for name in names)
            or len(set(names)) != len(names)
            or not parts
            or sum(f.role == "prior" for f in self.files) > 1
        ):
            raise ValueError(
                "files have distinct names other than the manifest's, at least one message part and at most one prior"
            )
        if sum(f.rows for f in parts) != self.n:
            raise ValueError("the rows of the message parts do not add up to n")
        if any(f.bytes > FILE_SLACK + FILE_ROW_BYTES * f.rows for f in self.files):
            raise ValueError("a file has more bytes than its rows can take")
        if any(f.rows > self.domain.k for f in self.files if f.role == "prior"):
            raise ValueError("the prior has more rows than the domain has labels")
        if self.epsilon.delta_atto:
            raise ValueError("a message spends no δ")
        if (self.prior.source == ESTIMATED) != bool(self.epsilon.prior):
            raise ValueError("ε_prior is not that of a prior that was estimated")
        bought = self.clipping is not None
        if bought != (self.domain_source == BOUGHT) or (not bought and self.epsilon.clip):
            raise ValueError("a domain that was bought with ε_clip comes with what was bought, and no other does")
        if self.clipping is not None:
            self.clipping.check(self.domain, self.epsilon.clip)
        if not self.read_channel().satisfies(self.epsilon.randomize):
            raise ValueError("the channel does not keep the ε it states")
        return self

    @property
    def stated(self) -> dict[str, Any]:
        """Members of the request that the manifest repeats, by name."""
        return {name: getattr(self, name) for name in names_to(Release, "manifest")}

    @property
    def message_files(self) -> list[FileEntry]:
        return [f for f in self.files if f.role == "message"]

    @property
    def prior_file(self) -> FileEntry | None:
        return next((f for f in self.files if f.role == "prior"), None)

    @property
    def public_domain(self) -> Domain:
        """Domain that the owner declared; wider than `domain` if bounds were bought."""
        return self.domain if self.clipping is None else self.clipping.public_domain

    def read_channel(self) -> Channel:
        if self._channel is None:
            self._channel = channel_from_json(self.channel, self.domain)
        return self._channel
