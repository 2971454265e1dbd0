"""Invitation: one party's name, address and public key for the other party, with a code that people compare by voice.

It costs no ε and holds no secret. A features party that answers makes its own API key and names only the SHA-256 of
its 256 random bits, which is all that a labels party stores. The key inside signs the document, which shows that the
sender holds it; that it is the right party's, only the comparison of the codes shows.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from label_dp.actors import MAX_NAME, require_name
from label_dp.documents.members import Day, KeyId, Sha256, service_url
from label_dp.documents.receipt import Name, public_key_text, read_public_key
from label_dp.documents.signed import Document
from label_dp.documents.signing import SigningKey, VerifyingKey, named_key
from label_dp.errors import InvalidFile, InvalidInput, MalformedInvitation, SignatureInvalid, VerificationFailed

CODE_LETTERS = 16  # 80 bits: another document with the same code is out of reach
GROUP = 4


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
        invitation, _ = cls.opened(envelope, _key_inside(envelope))
        if invitation.party != party:
            raise InvalidInput(f"'{path}' is from a {invitation.party} party; give the file of the {party} party.")
        return invitation


def _key_inside(envelope: bytes) -> VerifyingKey:
    """Return the key that the document states, whose id the envelope names; the signature is verified with it."""
    try:
        key = read_public_key(json.loads(base64.b64decode(json.loads(envelope)["payload"], validate=True))["key"])
    except (ValueError, KeyError, TypeError, RecursionError, InvalidFile):
        raise MalformedInvitation("The file is not a signed invitation.") from None
    if key.id != named_key(envelope):
        raise SignatureInvalid("The invitation is signed with another key than the one in it.")
    return key
