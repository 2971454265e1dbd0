"""End of a pull: a message or an answer is accounted for at once, since its holder has its ε, and its receipt is
sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from features_party.receive.accepted import AcceptedMessage
from features_party.receive.answers import Answers, SignedAnswer
from features_party.receive.following import Following
from features_party.receive.labels_service import LabelsService
from features_party.receive.messages import Messages
from features_party.receive.offers import Offer, offered, pull_answer
from features_party.receive.placing import CopyTarget
from features_party.receive.pull import LocalMessage
from features_party.receive.receipts import Delivery, ReceiptList, ReceiptService
from features_party.telemetry.steps import ACCOUNT, VERIFY
from label_dp.documents.signing import VerifyingKey
from label_dp.progress import Progress


@dataclass
class Arrivals:
    """Documents of one pull: hand them to `message` and `answer`, then call `acknowledge`. `labels_key` is as for
    `Messages.accept`."""

    messages: Messages
    answers: Answers
    receipts: ReceiptList
    labels_key: VerifyingKey | None
    actor: str = "cli"
    following: Following | None = None
    key_ids: set[str] = field(default_factory=set)

    def choose_key(self, envelope: bytes) -> VerifyingKey:
        """Return the key that must have signed a document. Raises as `PinnedKeys.for_envelope`."""
        return self.labels_key or self.messages.pinned.for_envelope(envelope)

    def chooser(self, service: LabelsService) -> Callable[[bytes], VerifyingKey]:
        """Return `choose_key`, or one that first pins the key of `service` if a pinned key handed over to it."""
        following = self.following
        if self.labels_key is not None or following is None:
            return self.choose_key
        return lambda envelope: following.key_for(envelope, service.signing_keys, self.actor)

    def pull(
        self, service: LabelsService, release: str, out: Path, progress: Progress, *, force: bool = False
    ) -> LocalMessage:
        """Pull a release to `out`; it is accounted for before it gets that name, and copied from our own folder. Raises
        as `receive.pull.pull`, and ReplayConflict if this release was accepted with another manifest."""
        offer = self._offered(service, release)
        target = CopyTarget.of(offer, out)
        if target.intact():
            local_message = LocalMessage.at(target, fresh=False)
            self.message(local_message)
            return local_message
        if not force:
            target.refuse_other()
        target.require_room()
        target.copy_from(self._brought(service, offer, progress).folder)
        return LocalMessage.at(target, fresh=True)

    def bring(self, service: LabelsService, release: str, progress: Progress) -> AcceptedMessage:
        """Fetch and account for a release, for our own folder only. Raises as `pull`."""
        return self._brought(service, self._offered(service, release), progress)

    def _offered(self, service: LabelsService, release: str) -> Offer:
        with self.messages.steps.step(VERIFY):
            return offered(service, release, self.chooser(service), self.messages.name)

    def _brought(self, service: LabelsService, offer: Offer, progress: Progress) -> AcceptedMessage:
        accepted_message = self.messages.kept_offer(offer) or self.messages.fetched(
            service, offer, self.actor, progress
        )
        self.key_ids.add(offer.manifest.key_id)
        return accepted_message

    def message(self, local_message: LocalMessage) -> AcceptedMessage:
        """Account for a local message. Raises ReplayConflict if this release was accepted with another manifest."""
        accepted_message = self.messages.known(local_message.manifest, local_message.digest)
        accepted_message = accepted_message or self.messages.accept(local_message.path, self.labels_key, self.actor)
        self.key_ids.add(local_message.manifest.key_id)
        return accepted_message

    def pull_answer(self, service: LabelsService, name: str) -> SignedAnswer:
        """Fetch, verify and account for a published answer. Raises as `pull_answer` and `answer`."""
        with self.messages.steps.step(VERIFY):
            envelope = pull_answer(service, name, self.chooser(service), self.answers.name)
        return self.answer(envelope)

    def answer(self, envelope: bytes) -> SignedAnswer:
        """Account for an answer. Raises ReplayConflict if it was accepted with another document."""
        with self.messages.steps.step(ACCOUNT):
            signed_answer = self.answers.accept(envelope, self.labels_key, self.actor)
        self.key_ids.add(signed_answer.answer.key_id)
        return signed_answer

    def acknowledge(self, service: ReceiptService) -> Delivery | None:
        """Send the receipts to the labels parties of these documents; None if there are none. Never raises for a failed
        delivery: the next pull tries again."""
        deliveries = [self.receipts.deliver(service, key_id) for key_id in self.receipts.relatives(self.key_ids)]
        if not deliveries:
            return None
        return Delivery(sum(d.delivered for d in deliveries), next((d.problem for d in deliveries if d.problem), None))
