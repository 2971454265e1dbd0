"""Publications of a labels party, as its own clients and the features parties read them."""

from __future__ import annotations

from label_dp.client import labels_paths as at
from label_dp.client.conversation import Conversation, Json, content, get, until
from label_dp.client.declared import call

AUDIT_EXPORT = "audit/export"


class PublishedCalls:
    """Calls of the owner and of an audience alike; results are not verified."""

    @call
    def release_state(self, release: str) -> Conversation[Json]:
        """Return state, progress, ε split and digests of a release."""
        return get(at.RELEASE, release)

    @call
    def manifest(self, release: str) -> Conversation[bytes]:
        """Return the signed manifest of a release's message."""
        return content(at.MANIFEST, release)

    @call
    def answer(self, answer: str) -> Conversation[Json]:
        """Return state, cost and digest of an answer of any kind, also of a predictor's to a query."""
        return get(at.ANSWER, answer)

    @call
    def wait_answer(self, answer: str, timeout: float = 600.0) -> Conversation[Json]:
        """Wait until an answer is published. Raises Conflict if it failed, Unavailable after `timeout` seconds."""
        return until("published", "Answer", at.ANSWER, answer, timeout)

    @call
    def answer_document(self, answer: str) -> Conversation[bytes]:
        """Return the signed document, the same bytes at every call. `open_median`, `open_rectangle` … of
        `label_dp.companions.kinds` verify and read it; a calibration is for `features-party calibrate --map`."""
        return content(at.DOCUMENT, answer)

    @call
    def calibration_allowance(self, batch: str) -> Conversation[Json]:
        """Return the ε that the audiences of a batch may still charge by calibrations."""
        return get(at.ALLOWANCE, batch)

    @call
    def sums_allowance(self, batch: str) -> Conversation[Json]:
        """Return the ε that the audiences of a batch may still charge by sums."""
        return get(at.SUMS_ALLOWANCE, batch)


class AuditCalls:
    """Calls about the audit store."""

    @call
    def audit_export(self) -> Conversation[bytes]:
        """Download the signed export of the audit store."""
        return content(AUDIT_EXPORT)
