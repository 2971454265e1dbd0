"""Invitation: one party's name, address and public key for the other party, with a code that people compare by voice.

It costs no ε and holds no secret. A features party that answers makes its own API key and names only the SHA-256 of
its 256 random bits, which is all that a labels party stores. The key inside signs the document, which shows that the
sender holds it; that it is the right party's, only the comparison of the codes shows.
"""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from label_dp.actors import MAX_NAME, require_name
from label_dp.documents.hand_over import key_inside
from label_dp.documents.members import Day, KeyId, Sha256
from label_dp.documents.receipt import Name, public_key_text, read_public_key
from label_dp.documents.signed import Document
from label_dp.documents.signing import SigningKey, VerifyingKey
from label_dp.errors import InvalidFile, InvalidInput, MalformedInvitation, VerificationFailed

CODE_LETTERS = 16  # 80 bits: another document with the same code is out of reach
GROUP = 4
MAX_URL = 2000
# plain ASCII only: parsers disagree about %, \, @ and dots as segments
ORIGIN = (
    r"(?P<scheme>https?)://(?P<host>[a-z0-9_]([a-z0-9._-]{0,252}[a-z0-9_])?|\[[0-9a-f:.]{2,45}\])"
    r"(:(?P<port>[1-9][0-9]{0,4}))?"
)
_URL = re.compile(ORIGIN + r"(?P<path>(/[a-z0-9._~-]+)*)/?", re.ASCII | re.IGNORECASE)
_DEFAULT_PORTS = {"http": 80, "https": 443}


def service_url(text: str) -> str:
    """Normalise a labels party's base URL: lower-case scheme and host, no default port, no slash at the end. Raises
    InvalidInput for anything but http(s)://host[:port][/plain/path]; the text never quotes the URL."""
    match = _URL.fullmatch(text) if len(text) <= MAX_URL else None
    port = int(match["port"] or 0) if match is not None else 0
    if match is None or port > 65535 or {".", ".."} & set(match["path"].split("/")):
        raise InvalidInput(
            "The labels party's URL must begin with http:// or https://, name a host and at most a port and a plain "
            "path, and have no user name, query or fragment; for example https://labels.example:8001."
        )
    scheme, host = match["scheme"].lower(), match["host"].lower()
    suffix = "" if port in (0, _DEFAULT_PORTS[scheme]) else f":{port}"
    return f"{scheme}://{host}{suffix}{match['path']}"


class Invitation(Document):
    """Signed invitation of a labels party, or the answer of a features party to one.

    `key` is 32 bytes in base64. A labels party gives its `url`. A features party gives the `audience` that its messages
    must name, `api_key_sha256` of the key it made, and in `answers` the labels party's key.
    """

    FORMAT: ClassVar[str] = "label-dp-invitation/1"
    TYPE: ClassVar[str] = "application/vnd.label-dp.invitation+json"
    NOUN: ClassVar[str] = "invitation"
    MALFORMED: ClassVar[type[VerificationFailed]] = MalformedInvitation
    MOST_ENVELOPE: ClassVar[int] = 1 << 13

    format: Literal["label-dp-invitation/1"] = "label-dp-invitation/1"
    party: Literal["labels", "features"]
    name: str = Field(min_length=1, max_length=MAX_NAME)
    key: str = Field(min_length=44, max_length=44)
    created: Day
    url: str | None = None
    audience: Name | None = None
    api_key_sha256: Sha256 | None = None
    answers: KeyId | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        of_features = (self.audience, self.api_key_sha256, self.answers)
        present = [self.url is not None, *(member is not None for member in of_features)]
        if present != [self.party == "labels"] + 3 * [self.party == "features"]:
            raise ValueError("a labels party gives a url; a features party an audience, an API key's digest, answers")
        try:
            require_name(self.name)
            if self.url is not None and service_url(self.url) != self.url:
                raise ValueError("the url is not in its one spelling")
        except InvalidInput as error:
            raise ValueError(error.detail) from None
        return self

    @property
    def public(self) -> VerifyingKey:
        return read_public_key(self.key)

    @property
    def code(self) -> str:
        """Letters and digits 2 to 7 in groups, from the SHA-256 of all that is signed."""
        letters = base64.b32encode(hashlib.sha256(self.payload()).digest()).decode("ascii")[:CODE_LETTERS]
        return "-".join(letters[at : at + GROUP] for at in range(0, CODE_LETTERS, GROUP))

    def require_code(self, heard: str) -> None:
        """Raise InvalidInput if `heard`, in any case and grouping, is another code."""
        if heard.upper().replace("-", "").replace(" ", "") != self.code.replace("-", ""):
            raise InvalidInput(
                f"The code does not belong to this file; '{self.name}' may not have written it, so nothing was "
                "changed. Have the code read again, by somebody whom you know, and if it differs, ask for a new file."
            )

    @classmethod
    def of(cls, key: SigningKey, **members: str) -> Self:
        """Build the invitation of the party that holds `key`. Raises InvalidInput for a malformed name or URL."""
        require_name(members["name"])
        if "url" in members:
            members["url"] = service_url(members["url"])
        return cls.model_validate(members | {"key": public_key_text(key.public)})

    @classmethod
    def read(cls, path: Path, party: Literal["labels", "features"]) -> Self:
        """Read the invitation of a labels or features party from a file. Raises InvalidFile, MalformedInvitation,
        SignatureInvalid, UnsupportedVersion, and InvalidInput for one of the other kind of party."""
        try:
            with path.open("rb") as file:
                envelope = file.read(cls.MOST_ENVELOPE + 1)
        except OSError as error:
            raise InvalidFile(f"'{path}' cannot be read ({error.strerror}).") from None
        invitation, _ = cls.opened(envelope, key_inside(envelope, "key", cls))
        if invitation.party != party:
            raise InvalidInput(f"'{path}' is from a {invitation.party} party; give the file of the {party} party.")
        return invitation
