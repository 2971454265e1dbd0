"""Audit store of the party that is called."""

from __future__ import annotations

from label_dp.client.conversation import Conversation, content
from label_dp.client.declared import call

AUDIT_EXPORT = "audit/export"


class AuditCalls:
    """Calls about the audit store."""

    @call
    def audit_export(self) -> Conversation[bytes]:
        """Download the signed export of the audit store."""
        return content(AUDIT_EXPORT)
