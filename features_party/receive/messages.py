"""Accepting a message: verify into our own folder, account, then put it in its place."""

from __future__ import annotations

import glob
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from features_party.receive.acceptances import MESSAGE, Acceptances, Item, kept_payload
from features_party.receive.accepted import AcceptedMessage
from features_party.receive.fetching import fetch_files, incoming
from features_party.receive.labels_service import LabelsService
from features_party.receive.offers import Offer
from features_party.receive.pinned import PinnedKeys
from features_party.storage.file_store import FileStore
from features_party.storage.home import INCOMING, Home
from features_party.telemetry.steps import ACCOUNT, FETCH, VERIFY, Steps
from label_dp.documents import bundle
from label_dp.documents.manifest import Manifest
from label_dp.documents.rehearsal import Rehearsal
from label_dp.documents.signing import VerifyingKey
from label_dp.errors import InvalidFile, InvalidInput, LabelDPError
from label_dp.progress import Progress
from label_dp.store.folders import place_folder


@dataclass(frozen=True)
class Messages:
    """Accepted messages. `name` is ours among audiences; messages lie in `place`."""

    acceptances: Acceptances
    home: Home
    place: FileStore
    pinned: PinnedKeys
    name: str
    steps: Steps = field(default_factory=Steps, repr=False)

    def verify(self, path: Path, labels_key: VerifyingKey | None = None) -> bundle.VerifiedMessage:
        """Verify a message or a rehearsal without writing. Raises the VerificationFailed kind of the broken rule."""
        return self._open(path, labels_key, rehearsals=True).check()

    def accept_all(self, named: Iterable[Path], labels_key: VerifyingKey | None) -> list[AcceptedMessage]:
        """Accept the messages of paths, folders and patterns; all are verified before the first is accounted for. A
        rehearsal is not accounted for. Raises InvalidInput if messages are among rehearsals."""
        opened = [self._open(path, labels_key, rehearsals=True) for path in message_paths(named)]
        verified = [message.check() for message in opened]
        rehearsed = [isinstance(message.manifest, Rehearsal) for message in opened]
        if any(rehearsed):
            if not all(rehearsed):
                raise InvalidInput("A rehearsal has made-up labels: name rehearsals or messages, not both.")
            return [self._rehearsal(message) for message in opened]
        return [
            self.kept(verified_message) or self._accept(message, "cli")
            for message, verified_message in zip(opened, verified, strict=True)
        ]

    def _open(self, path: Path, labels_key: VerifyingKey | None, *, rehearsals: bool = False) -> bundle.SignedMessage:
        key = labels_key or self.pinned.for_envelope(bundle.Bundle(path).envelope())
        return self.pinned.unless_rehearsed(bundle.open_message(path, key, self.name, rehearsals=rehearsals), key)

    def _rehearsal(self, message: bundle.SignedMessage) -> AcceptedMessage:
        """Copy a rehearsal, swept after a day: no audit event, no receipt, no row."""
        self.home.sweep()
        folder = self.home.incoming(self.home.messages)
        verified_message = message.copy(folder)
        place = self.home.messages / f"{INCOMING}{Item(verified_message.manifest, verified_message.digest).place}"
        shutil.rmtree(place, ignore_errors=True)
        place_folder(folder, place)
        return AcceptedMessage(verified_message.manifest, verified_message.digest, place, fresh=False)

    def accept(self, path: Path, labels_key: VerifyingKey | None = None, actor: str = "cli") -> AcceptedMessage:
        """Verify the message at `path` into our own folder and account for it. Repeating it is safe, also after a
        crash, and writes no second event.

        `labels_key` defaults to the pinned key that the envelope names. Raises InvalidFile and VerificationFailed
        kinds, also those of `Acceptances.account`.
        """
        message = self._open(path, labels_key)
        earlier = self.known(message.manifest, message.digest)
        return (earlier and self.kept(message.check())) or self._accept(message, actor)

    def kept(self, verified: bundle.VerifiedMessage) -> AcceptedMessage | None:
        """Return the message accepted before if our copy is whole."""
        accepted_message = self.known(verified.manifest, verified.digest)
        return accepted_message if accepted_message is not None and _whole(accepted_message) else None

    def kept_offer(self, offer: Offer) -> AcceptedMessage | None:
        """Return the message accepted before if our copy has every file of the offer, unchanged."""
        accepted_message = self.known(offer.manifest, offer.digest)
        return accepted_message if accepted_message is not None and _whole(accepted_message, prior=True) else None

    def known(self, manifest: Manifest, digest: str) -> AcceptedMessage | None:
        """Return the message accepted before; reads no byte of our copy."""
        item = Item(manifest, digest)
        if not self.acceptances.known(item):
            return None
        return AcceptedMessage(manifest, digest, self.place.path(item.place), fresh=False)

    def _accept(self, message: bundle.SignedMessage, actor: str) -> AcceptedMessage:
        self.home.sweep()
        temporary = self.home.incoming(self.home.messages)
        try:
            with self.steps.step(VERIFY):
                verified = message.copy(temporary)
            return self._take(verified.manifest, verified.digest, temporary, actor)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def fetched(self, service: LabelsService, offer: Offer, actor: str, progress: Progress) -> AcceptedMessage:
        """Fetch an offered message into our own folder and account for it, reading every byte once. Resumes an
        interrupted call. Raises as `fetch_files` and `Acceptances.account`."""
        self.home.sweep()
        try:
            with incoming(self.home, Item(offer.manifest, offer.digest).place) as folder:
                with self.steps.step(FETCH):
                    fetch_files(service, offer.manifest, folder, progress)
                (folder / bundle.FOLDER_ENVELOPE).write_bytes(offer.envelope)
                return self._take(offer.manifest, offer.digest, folder, actor)
        except OSError as error:
            raise InvalidFile(f"The message cannot be written to '{self.home.messages}' ({error.strerror}).") from None

    def _take(self, manifest: Manifest, digest: str, folder: Path, actor: str) -> AcceptedMessage:
        """Account for the verified message in `folder`, which no other process uses, then move it to its place."""
        item = Item(manifest, digest)
        target = self.place.draft(item.place)
        with self.steps.step(ACCOUNT):
            if not self.acceptances.known(item):
                self.pinned.require_open(manifest.key_id)
            fresh = self.acceptances.account(item, actor)
        accepted_message = AcceptedMessage(manifest, digest, target, fresh)
        # the lasting place comes after the accounting; a repeated call moves it after a crash in between
        if target.is_dir() and not (_whole(accepted_message) and accepted_message.has_prior(folder)):
            shutil.rmtree(target)  # a damaged copy is replaced by the one that was just verified
        place_folder(folder, target)
        self.place.keep(item.place)
        return replace(accepted_message, folder=self.place.path(item.place))

    def open(self, name: str) -> AcceptedMessage:
        """Open an accepted message by its release id or its manifest's digest, and check its bytes. Raises NotFound,
        MalformedManifest, DigestMismatch, and Conflict if labels parties chose the same release id."""
        digest, place = self.acceptances.find(MESSAGE, name)
        folder = self.place.path(place)
        accepted_message = AcceptedMessage(Manifest.from_payload(_payload(folder, digest)), digest, folder, fresh=False)
        accepted_message.check()
        return accepted_message


def _payload(folder: Path, digest: str) -> bytes:
    return kept_payload(bundle.Bundle(folder).envelope(), digest, folder, MESSAGE)


def _whole(message: AcceptedMessage, *, prior: bool = False) -> bool:
    try:
        _payload(message.folder, message.digest)
        message.check(prior=prior)
    except LabelDPError:
        return False
    return True


PRIOR_SUFFIX = ".prior.parquet"


def message_paths(named: Iterable[Path]) -> list[Path]:
    """List the messages of `named` in its order, each once; those of a folder or pattern by name.

    A shell's `*.parquet` also matches priors beside their messages; they are left out. Raises InvalidFile if a folder
    or pattern has no message.
    """
    paths: dict[Path, None] = {}
    for path in named:
        if not path.exists() and glob.has_magic(str(path)):
            several = [Path(name) for name in sorted(glob.glob(str(path)))]  # noqa: PTH207 - the pattern may be absolute
            messages = [p for p in several if _is_message(p)]
        elif not path.exists():
            local = "" if ":/" not in str(path) else " A message is a file or folder of this machine."
            raise InvalidFile(f"There is no file or folder '{path}'.{local}")
        elif path.is_dir() and not (path / bundle.FOLDER_ENVELOPE).exists():
            messages = [p for p in sorted(path.iterdir()) if _is_message(p)]
        else:
            messages = [] if _is_prior(path) else [path]  # anything else is refused when it is opened
            if not messages:
                continue
        if not messages:
            raise InvalidFile(
                f"There is no message in '{path}': a message is NAME.parquet with NAME.parquet{bundle.ENVELOPE_SUFFIX} "
                f"beside it, or a folder with {bundle.FOLDER_ENVELOPE}."
            )
        paths |= dict.fromkeys(messages)
    if not paths:
        raise InvalidFile("Only priors were named; name the messages beside them.")
    return list(paths)


def _is_message(path: Path) -> bool:
    if path.is_dir():
        return (path / bundle.FOLDER_ENVELOPE).exists()
    return path.with_name(path.name + bundle.ENVELOPE_SUFFIX).exists() and not path.name.startswith(".")


def _is_prior(path: Path) -> bool:
    message = path.with_name(path.name.removesuffix(PRIOR_SUFFIX) + ".parquet")
    return path.name.endswith(PRIOR_SUFFIX) and _is_message(message) and not _is_message(path)
