"""Offers of a labels party: published releases with a verified manifest, and published answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from features_party.receive.labels_service import LabelsService
from label_dp.documents.manifest import Manifest
from label_dp.documents.registry import trusted_answer
from label_dp.documents.signing import VerifyingKey
from label_dp.errors import Conflict, MalformedAnswer, MalformedManifest

ChooseKey = Callable[[bytes], VerifyingKey]
ENDED = ("failed", "declined", "cancelled")


@dataclass(frozen=True)
class Offer:
    """Message that may be fetched: the manifest in `envelope` was verified with `key`."""

    manifest: Manifest
    digest: str
    envelope: bytes
    key: VerifyingKey
    audience: str

    @property
    def several(self) -> bool:
        return len(self.manifest.message_files) > 1

    @property
    def bytes(self) -> int:
        return sum(entry.bytes for entry in self.manifest.files)


def offered(service: LabelsService, release: str, choose_key: ChooseKey, audience: str) -> Offer:
    """Fetch and verify the manifest of `release`. Raises VerificationFailed kinds, Conflict (not published yet),
    NotFound, Unavailable."""
    _require_published(f"Release '{release}'", service.release_state(release).get("state"))
    envelope = service.manifest(release)
    key = choose_key(envelope)
    manifest, digest = Manifest.trusted(envelope, key, audience)
    if manifest.id != release:
        raise MalformedManifest("The labels party sent the manifest of another release than the one asked for.")
    return Offer(manifest, digest, envelope, key, audience)


def pull_answer(service: LabelsService, answer: str, choose_key: ChooseKey, audience: str) -> bytes:
    """Fetch and verify the envelope of answer `answer`. Raises VerificationFailed kinds, Conflict (not published yet),
    NotFound, Unavailable."""
    _require_published(f"Answer '{answer}'", service.answer(answer).get("state"))
    envelope = service.answer_document(answer)
    if trusted_answer(envelope, choose_key(envelope), audience)[0].id != answer:
        raise MalformedAnswer("The labels party sent another answer than the one asked for.")
    return envelope


def _require_published(what: str, state: object) -> None:
    if state == "published":
        return
    word = state if isinstance(state, str) and len(state) < 40 and state.isprintable() else "unknown"
    if word in ENDED:
        raise Conflict(f"{what} is {word} and will not be published; ask the labels party why.")
    raise Conflict(f"{what} is not published yet (its state is {word}); try again later.")
