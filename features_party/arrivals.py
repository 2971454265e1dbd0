"""What follows a pull: who holds a message or an answer has its ε, so it is accounted for at once, and its receipt is
sent."""

from __future__ import annotations

from dataclasses import dataclass, field

from features_party.bootstrap import Services
from features_party.intake.answers import SignedAnswer
from features_party.intake.receipts import Delivery, ReceiptService
from features_party.pull import Pulled
from shared.message.signing import VerifyingKey


@dataclass
class Arrivals:
    """Call it with each pulled message, `answer` with each pulled answer, then `acknowledge`. `labels_key` is as for
    `Intake.accept`."""

    services: Services
    labels_key: VerifyingKey | None
    key_ids: set[str] = field(default_factory=set)

    def __call__(self, pulled: Pulled) -> None:
        """Raises ReplayConflict where this release was accepted with another manifest."""
        if not self.services.intake.known(pulled.manifest, pulled.digest):
            self.services.intake.accept(pulled.path, self.labels_key)
        self.key_ids.add(pulled.manifest.key_id)

    def answer(self, envelope: bytes) -> SignedAnswer:
        """Raises ReplayConflict where this answer was accepted with another document."""
        found = self.services.answers.accept(envelope, self.labels_key)
        self.key_ids.add(found.answer.key_id)
        return found

    def acknowledge(self, service: ReceiptService) -> Delivery | None:
        """Send the receipts of the labels parties of what came; None if none did. Never raises for a failed
        delivery: the next pull tries again."""
        sent = [self.services.receipts.deliver(service, key_id) for key_id in sorted(self.key_ids)]
        if not sent:
            return None
        return Delivery(sum(d.delivered for d in sent), next((d.problem for d in sent if d.problem), None))
