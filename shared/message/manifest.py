"""The signed, public description inside a release, format `label-dp-message` 1.3.

Every number that is not a whole number is a decimal string, so the canonical bytes have one spelling. A reader
refuses a newer major version; members added by a newer minor version are ignored.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)

from shared.channel import Channel
from shared.domain import Domain
from shared.errors import InvalidDomain, InvalidEpsilon, MalformedManifest, UnsupportedVersion
from shared.message.canonical import canonical_bytes, parse_canonical
from shared.privacy import Epsilon, EpsilonSplit, PrivacyUnit, parse_delta

FORMAT_NAME = "label-dp-message"
MAJOR, MINOR = 1, 3  # 1.1: more kinds of channels; 1.2: clipping; 1.3: δ that other answers spent
CLIPPING_MINOR, DELTA_MINOR = 2, 3
PLAIN_MINOR = 1  # that of a manifest without either, which readers of 1.1 know whole
MAX_MANIFEST_BYTES = 1 << 20
MAX_FILES = 4096
Number = Field(pattern=r"^[0-9]{1,30}(\.[0-9]{1,18})?$")  # in ASCII: numbers have other digits, too
Text = Field(min_length=1, max_length=400)
Id = Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.:-]+$")
QUANTILE = re.compile(r"0\.[0-9]{0,8}[1-9]", re.ASCII)
BOUGHT = "bought with ε_clip"
PRIOR_FILE = "prior.parquet"
SIGNED_SUFFIX = ".dsse.json"  # of signed manifests, so no part may have it
ENVELOPE_FILE = f"manifest{SIGNED_SUFFIX}"  # inside a folder
RANDOMNESS = (
    "AES-256-CTR keystreams under fresh keys of the operating system, discarded after use: ε is exact for ideal random "
    "bits and computational for this cipher"
)


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Format(Strict):
    name: Literal["label-dp-message"] = "label-dp-message"
    major: int = MAJOR
    minor: int = PLAIN_MINOR


class PopulationRef(Strict):
    id: str = Id
    name: str = Text
    label: str = Text


class FileEntry(Strict):
    """One file of the release: `role` message (one or more parts, in order) or prior."""

    role: Literal["message", "prior"]
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")
    bytes: int = Field(ge=1, le=1 << 50)
    rows: int = Field(ge=0, le=1 << 40)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Mechanism(Strict):
    name: str = Text
    why: str = Field(default="asked for", max_length=2000)


class PriorRef(Strict):
    """Where the prior came from: estimated with ε_prior, declared by the owner, carried over, uniform, or not used."""

    source: Literal["estimated", "declared public by the owner", "carried over", "uniform", "not used"]
    method: str | None = None
    cells: int | None = None
    release: str | None = None


class Clipping(Strict):
    """Where labels were clipped, bought with ε_clip: each of `quantiles` at its own of `bounds`, which are ends of the
    message's domain, inside the `public_domain` that the owner declared. One quantile is the upper end's."""

    quantiles: list[str] = Field(min_length=1, max_length=2)
    bounds: list[str] = Field(min_length=1, max_length=2)
    epsilon: str = Number
    public_domain: dict[str, Any]
    mechanism: Literal["exponential mechanism on ranks"] = "exponential mechanism on ranks"

    @field_validator("quantiles")
    @classmethod
    def _quantiles(cls, value: list[str]) -> list[str]:
        if any(QUANTILE.fullmatch(text) is None for text in value) or sorted({Fraction(t) for t in value}) != [
            Fraction(text) for text in value
        ]:
            raise ValueError("quantiles are decimal numbers between 0 and 1, rising, each spelled in one way")
        return value

    def summary(self) -> dict[str, Any]:
        """What people and programs are shown of it."""
        data = self.model_dump(mode="json", exclude={"public_domain"})
        return data | {"public_domain": str(self.read_public_domain())}

    def read_public_domain(self) -> Domain:
        return Domain.from_json(self.public_domain)

    def check(self, domain: Domain, epsilon: Epsilon) -> None:
        """Whether it tells of `domain` and ε_clip. Raises ValueError and InvalidDomain."""
        public = self.read_public_domain()
        if public.as_json() != self.public_domain:
            raise ValueError("the public domain is not in its one spelling")
        first, last = public.place(domain)
        ends = [domain.value(0), domain.value(domain.k - 1)]
        if (len(self.quantiles) == 1 and first != 0) or first == last:
            raise ValueError("the domain has other ends than those that were bought")
        if self.bounds != [format(end, "f") for end in ends[-len(self.quantiles) :]]:
            raise ValueError("the bounds are not the ends of the domain")
        if not epsilon or Epsilon.parse(self.epsilon) != epsilon:
            raise ValueError("ε of the bounds is not the ε_clip of the split")


class Unit(Strict):
    kind: Literal["example", "unit"] = "example"
    column: str | None = None
    max_examples: int | None = Field(default=None, ge=1)
    epsilon_per_unit: str | None = Field(default=None, pattern=r"^[0-9]{1,30}(\.[0-9]{1,9})?$")


class DeltaSpent(Strict):
    """Where the population has a lifetime δ: what each example of the batch has spent of it, decimals."""

    spent: str = Number
    lifetime: str = Number

    def check(self, least: int) -> None:
        """Raises ValueError or InvalidEpsilon; `least` is the atto-δ of the release itself."""
        if not least <= parse_delta(self.spent) <= parse_delta(self.lifetime):
            raise ValueError("δ of this release ≤ δ spent ≤ lifetime δ does not hold")


def _distinct(value: list[str]) -> list[str]:
    if len(set(value)) != len(value) or any(not 1 <= len(a) <= 200 for a in value):
        raise ValueError("audiences are distinct, non-empty names")
    return value


def _parts(value: dict[str, str]) -> dict[str, str]:
    if set(value) != {"clip", "prior", "randomize", "total", "delta"}:
        raise ValueError("ε has the parts clip, prior, randomize, their total, and δ")
    if any(not part.isascii() or not part.replace(".", "", 1).isdigit() for part in value.values()):
        raise ValueError("the parts of ε are plain decimal numbers")
    return value


# members of every signed document: who may read it, and how its ε is split
Audiences = Annotated[list[str], Field(min_length=1, max_length=1000), AfterValidator(_distinct)]
SplitText = Annotated[dict[str, str], AfterValidator(_parts)]


class Manifest(Strict):
    format: Format = Format()
    release: str = Id
    batch: str = Id
    population: PopulationRef
    audiences: Audiences
    key_id: str = Field(pattern=r"^ed25519:[0-9a-f]{64}$")
    created: str = Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")
    n: int = Field(ge=1, le=1 << 40)
    domain: dict[str, Any]
    domain_source: Literal["declared public by the owner", "bought with ε_clip"] = "declared public by the owner"
    out_of_domain: Literal["clip", "refuse"]
    missing_label: str | None
    presence: Literal["id list given before labels counted", "declared public by the owner"]
    mechanism: Mechanism
    loss: str = Text
    channel: dict[str, Any]
    expected_loss: str | None
    prior: PriorRef
    epsilon: SplitText
    epsilon_spent: str = Number
    epsilon_lifetime: str = Number
    unit: Unit = Unit()
    clipping: Clipping | None = None
    delta: DeltaSpent | None = None
    adjacency: Literal["replace one example's label"] = "replace one example's label"
    randomness: str = RANDOMNESS
    files: list[FileEntry] = Field(min_length=1, max_length=MAX_FILES)
    _channel: Channel | None = PrivateAttr(default=None)  # read once: checking it takes a while for large domains

    @model_validator(mode="after")
    def _consistent(self) -> Manifest:
        names = [f.name.lower() for f in self.files]  # some file systems do not tell them apart
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
        spent, lifetime = Epsilon.parse(self.epsilon_spent), Epsilon.parse(self.epsilon_lifetime)
        if not self.split.total <= spent <= lifetime:
            raise ValueError("ε of this release ≤ ε spent ≤ lifetime ε does not hold")
        per_unit, many = self.unit.epsilon_per_unit, self.unit.max_examples
        if per_unit is not None and (many is None or Fraction(per_unit) < many * spent.fraction):
            raise ValueError("ε per unit is less than its examples may have spent together")
        if self.read_domain().as_json() != self.domain:
            raise ValueError("the domain is not in its one spelling")
        if (self.clipping is not None) != (self.domain_source == BOUGHT) or (self.clipping is None and self.split.clip):
            raise ValueError("a domain that was bought with ε_clip comes with what was bought, and no other does")
        if self.clipping is not None:
            if self.format.minor < CLIPPING_MINOR:
                raise ValueError("clipping came with format 1.2")
            self.clipping.check(self.read_domain(), self.split.clip)
        if self.delta is not None:
            if self.format.minor < DELTA_MINOR:
                raise ValueError("δ spent came with format 1.3")
            self.delta.check(self.split.delta_atto)
        if not self.read_channel().satisfies(self.split.randomize):
            raise ValueError("the channel does not keep the ε it states")
        return self

    # --- read views ---------------------------------------------------------------------------------------

    @property
    def split(self) -> EpsilonSplit:
        return EpsilonSplit.from_json(self.epsilon)

    @property
    def message_files(self) -> list[FileEntry]:
        return [f for f in self.files if f.role == "message"]

    @property
    def prior_file(self) -> FileEntry | None:
        return next((f for f in self.files if f.role == "prior"), None)

    @property
    def privacy_unit(self) -> PrivacyUnit:
        return PrivacyUnit(self.unit.column, self.unit.max_examples)

    def read_domain(self) -> Domain:
        return Domain.from_json(self.domain)

    @property
    def public_domain(self) -> Domain:
        """What the owner declared: of a domain that was bought, the one around it."""
        return self.read_domain() if self.clipping is None else self.clipping.read_public_domain()

    def read_channel(self) -> Channel:
        if self._channel is None:
            self._channel = Channel.from_json(self.channel, self.read_domain())
        return self._channel

    def document(self) -> dict[str, Any]:
        data = self.model_dump(mode="json")
        if self.clipping is None:
            del data["clipping"]  # as messages of format 1.0 and 1.1 are spelled
        if self.delta is None:
            del data["delta"]
        return data

    def payload(self) -> bytes:
        data = canonical_bytes(self.document())
        if len(data) > MAX_MANIFEST_BYTES:
            raise MalformedManifest(
                f"The manifest would be larger than {MAX_MANIFEST_BYTES} bytes; use fewer bins or a range domain."
            )
        return data

    @classmethod
    def from_payload(cls, payload: bytes) -> Manifest:
        """A manifest from *already verified* bytes. Raises MalformedManifest or UnsupportedVersion."""
        if len(payload) > MAX_MANIFEST_BYTES:
            raise MalformedManifest(f"The manifest is larger than {MAX_MANIFEST_BYTES} bytes.")
        data = parse_canonical(payload)
        version = data.get("format") if isinstance(data, dict) else None
        if not isinstance(version, dict) or version.get("name") != FORMAT_NAME:
            raise MalformedManifest("The signed document is not the manifest of a privatized message.")
        major, minor = version.get("major"), version.get("minor")
        if type(major) is not int or type(minor) is not int or major < 1 or minor < 0:
            raise MalformedManifest("The manifest has no valid format version.")
        if major > MAJOR:
            raise UnsupportedVersion(
                f"The message has format version {major}.{minor}, this software reads up to {MAJOR}.x: "
                "upgrade the features party."
            )
        if minor > MINOR:
            data = _known(cls, data)
        if data.get("clipping", {}) is None:
            raise MalformedManifest("The manifest is malformed (clipping: it is left out where nothing was bought).")
        if data.get("delta", {}) is None:
            raise MalformedManifest("The manifest is malformed (delta: it is left out where there is no lifetime δ).")
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            # a member may have any name at all, and who reads this may sit at a terminal
            where = ascii(".".join(str(part) for part in first["loc"])[:100])[1:-1] or "as a whole"
            raise MalformedManifest(f"The manifest is malformed ({where}: {first['msg']}).") from None
        except (InvalidDomain, InvalidEpsilon, MalformedManifest) as error:
            raise MalformedManifest(f"The manifest is malformed: {error.detail}") from None


def _known(model: type[BaseModel], data: Any) -> Any:
    """`data` without the members that `model` and the models inside it do not have (the channel's are never dropped:
    an unknown part of it could change what ε means)."""
    if not isinstance(data, dict):
        return data
    known = {}
    for name, value in data.items():
        if name in model.model_fields:
            kind = model.model_fields[name].annotation
            inner = next((k for k in (kind, *get_args(kind)) if isinstance(k, type) and issubclass(k, BaseModel)), None)
            if inner is not None:
                value = [_known(inner, v) for v in value] if isinstance(value, list) else _known(inner, value)
            known[name] = value
    return known
