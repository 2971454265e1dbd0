"""The audit store of the party that is called."""

from __future__ import annotations

from label_dp.client.conversation import Conversation, content
from label_dp.client.declared import call

AUDIT_EXPORT = "audit/export"


class AuditCalls:
    @call
    def audit_export(self) -> Conversation[bytes]:
        """The signed export of the audit store."""
        return content(AUDIT_EXPORT)
