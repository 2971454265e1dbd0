"""Accepted messages know their receipt: its place in our list, its digest, and the audit event that holds it."""

import base64
import hashlib
import json

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_index("ix_audit_events_kind", "audit_events", ["kind"])
    op.add_column("messages", sa.Column("receipt_position", sa.BigInteger))
    op.add_column("messages", sa.Column("receipt_digest", sa.String(64)))
    op.add_column("messages", sa.Column("receipt_event", sa.BigInteger))
    op.create_index("ix_messages_receipt", "messages", ["key_id", "receipt_position"], unique=True)
    _refill()


def _refill() -> None:
    """After a downgrade: the list goes on where the audit events say that it ended."""
    connection = op.get_bind()
    rows = connection.execute(sa.text("SELECT sequence, body FROM audit_events WHERE kind = 'message-accepted'")).all()
    for sequence, body in rows:
        envelope = json.loads(bytes(body))["details"].get("receipt")
        if envelope is None:
            continue
        payload = base64.b64decode(envelope["payload"])
        receipt = json.loads(payload)
        connection.execute(
            sa.text(
                "UPDATE messages SET receipt_position = :position, receipt_digest = :digest, receipt_event = :event "
                "WHERE key_id = :key_id AND release = :release"
            ),
            {
                "position": receipt["position"],
                "digest": hashlib.sha256(payload).hexdigest(),
                "event": sequence,
                "key_id": receipt["labels_key_id"],
                "release": receipt["release"],
            },
        )


def downgrade() -> None:
    # the signed receipts stay in the audit events, which are never migrated
    op.drop_index("ix_audit_events_kind", "audit_events")
    op.drop_index("ix_messages_receipt", "messages")
    for column in ("receipt_event", "receipt_digest", "receipt_position"):
        op.drop_column("messages", column)
