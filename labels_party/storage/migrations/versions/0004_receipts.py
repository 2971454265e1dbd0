"""Receipts of accepted releases, by the receiver's key and position; their signed bytes are in the audit events."""

import base64
import hashlib
import json

import sqlalchemy as sa
from alembic import op

from shared.audit.store import append_only_ddl, append_only_drop

revision = "0004"
down_revision = "0003"

SAME = (
    "(key_id = NEW.key_id AND labels_key_id = NEW.labels_key_id AND position = NEW.position) "
    "OR digest = NEW.digest OR event = NEW.event "
    "OR (audience = NEW.audience AND release = NEW.release)"
)


def upgrade() -> None:
    op.create_index("ix_audit_events_kind", "audit_events", ["kind"])  # finds the few registered keys among all events
    table = op.create_table(
        "receipts",
        sa.Column("key_id", sa.String(80), primary_key=True),
        sa.Column("labels_key_id", sa.String(80), primary_key=True),
        sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("previous", sa.String(64), nullable=False),
        sa.Column("audience", sa.String(200), nullable=False),
        sa.Column("release", sa.String(40), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False, unique=True),
        sa.Column("event", sa.BigInteger, nullable=False, unique=True),
        sa.UniqueConstraint("audience", "release"),
    )
    _refill(table)
    for statement in append_only_ddl(op.get_bind().dialect.name, "receipts", SAME):
        op.execute(statement)


def _refill(table: sa.Table) -> None:
    """After a downgrade: the audit events still hold every receipt."""
    connection = op.get_bind()
    rows = connection.execute(sa.text("SELECT sequence, body FROM audit_events WHERE kind = 'receipt-received'")).all()
    for sequence, body in rows:
        envelope = json.loads(bytes(body))["details"]["receipt"]
        payload = base64.b64decode(envelope["payload"])
        receipt = json.loads(payload)
        row = {name: receipt[name] for name in ("labels_key_id", "position", "previous", "audience", "release")}
        row |= {"key_id": envelope["signatures"][0]["keyid"], "digest": hashlib.sha256(payload).hexdigest()}
        connection.execute(sa.insert(table).values(**row, event=sequence))


def downgrade() -> None:
    for statement in append_only_drop(op.get_bind().dialect.name, "receipts"):
        op.execute(statement)
    op.drop_table("receipts")
    op.drop_index("ix_audit_events_kind", "audit_events")
