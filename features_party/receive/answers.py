"""Accepting a signed answer: verify, account, then store."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from features_party.receive.acceptances import ANSWER, Acceptances, Item, kept_payload
from features_party.receive.accepted import summary
from features_party.receive.pinned import PinnedKeys
from features_party.storage.file_store import FileStore
from label_dp.documents.answer import Answer, read_answer
from label_dp.documents.registry import trusted_answer
from label_dp.documents.signing import VerifyingKey
from label_dp.errors import InvalidFile, LabelDPError
from label_dp.schemas.json_types import JsonObject
from label_dp.store.folders import write_durably


@dataclass(frozen=True)
class SignedAnswer:
    """Verified answer; `digest` is the SHA-256 of its payload, `envelope` the signed bytes. `kept`: accounted for and
    stored here; `fresh`: accepted just now for the first time."""

    answer: Answer
    digest: str
    envelope: bytes
    kept: bool = False
    fresh: bool = False

    def summary(self) -> JsonObject:
        """Summarise the answer; every member is public."""
        answer = self.answer
        return summary(answer) | {
            "answer": answer.id,
            "kind": answer.kind,
            "parameters": answer.parameters,
            "result": answer.result,
            "adjacency": answer.adjacency,
            "document_digest": self.digest,
        }


@dataclass(frozen=True)
class Answers:
    """Accepted answers. `name` is ours among audiences; envelopes lie in `place`."""

    acceptances: Acceptances
    place: FileStore
    pinned: PinnedKeys
    name: str

    def verify(self, envelope: bytes, labels_key: VerifyingKey | None = None) -> SignedAnswer:
        """Verify an envelope without writing anything. Raises the VerificationFailed kind of the broken rule."""
        return verified_answer(envelope, labels_key or self.pinned.for_envelope(envelope), self.name)

    def accept(self, envelope: bytes, labels_key: VerifyingKey | None = None, actor: str = "cli") -> SignedAnswer:
        """Verify, account for and store an answer. Repeating it is safe, also after a crash, and writes no second
        event. Raises VerificationFailed kinds, also those of `Acceptances.account`."""
        signed_answer = self.verify(envelope, labels_key)
        item = Item(signed_answer.answer, signed_answer.digest)
        name = f"{item.place}.dsse.json"
        if not self.acceptances.known(item):
            self.pinned.require_open(signed_answer.answer.key_id)
        fresh = not self.acceptances.known(item) and self.acceptances.account(item, actor)
        if fresh or not _whole(self.place.path(name), signed_answer.digest):
            write_durably(self.place.draft(name), envelope)
            self.place.keep(name)
        return replace(signed_answer, kept=True, fresh=fresh)

    def open(self, name: str) -> SignedAnswer:
        """Open an accepted answer from our own copy, by its id or the digest of its document. Raises NotFound,
        MalformedAnswer, and Conflict if labels parties chose the same id."""
        digest, place = self.acceptances.find(ANSWER, name)
        return _stored(self.place.path(f"{place}.dsse.json"), digest)


def _stored(path: Path, digest: str) -> SignedAnswer:
    try:
        envelope = read_answer(path)
    except InvalidFile:
        envelope = b""
    answer = Answer.from_payload(kept_payload(envelope, digest, path, ANSWER))
    return SignedAnswer(answer, digest, envelope, kept=True)


def _whole(path: Path, digest: str) -> bool:
    try:
        _stored(path, digest)
    except LabelDPError:
        return False
    return True


def verified_answer(envelope: bytes, key: VerifyingKey, audience: str) -> SignedAnswer:
    """Verify an envelope for `audience`. Raises VerificationFailed kinds."""
    return SignedAnswer(*trusted_answer(envelope, key, audience), envelope)
