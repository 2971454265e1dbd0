"""Conversion windows, upserts, approvals, retention, erasure, webhooks; idempotency keys that know their batch."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def _added() -> dict[str, list[sa.Column[Any]]]:
    return {
        "populations": [
            sa.Column("four_eyes", sa.Boolean, nullable=False, server_default=sa.false()),
            sa.Column("retention_days", sa.Integer, nullable=True),
            sa.Column("alert_percent", sa.JSON, nullable=True),
        ],
        "batches": [
            sa.Column("seal_at", sa.String(20), nullable=True),
            sa.Column("release_template", sa.JSON, nullable=True),
            sa.Column("scheduled_by", sa.String(60), nullable=True),
            sa.Column("schedule_problem", sa.JSON, nullable=True),
            sa.Column("scheduled_release", sa.String(40), nullable=True),
            sa.Column("purged", sa.String(20), nullable=True),
        ],
        "segments": [sa.Column("mode", sa.String(10), nullable=False, server_default="insert")],
        "idempotency": [
            sa.Column("batch", sa.String(40), nullable=True),
            sa.Column("claimed_until", sa.Float, nullable=True),
        ],
        "releases": [
            sa.Column("requested_by", sa.String(60), nullable=True),
            sa.Column("approved_by", sa.String(60), nullable=True),
            sa.Column("approved", sa.String(20), nullable=True),
        ],
    }


def upgrade() -> None:
    for table, columns in _added().items():
        for column in columns:
            op.add_column(table, column)
    op.create_index("ix_batches_seal_at", "batches", ["seal_at"])
    op.create_index("ix_idempotency_batch", "idempotency", ["batch"])
    op.create_table(
        "webhooks",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("population", sa.String(40), sa.ForeignKey("populations.id"), nullable=True),
        sa.Column("url", sa.String(2000), nullable=False),
        sa.Column("events", sa.JSON, nullable=False),
        sa.Column("created", sa.String(20), nullable=False),
        sa.Column("created_by", sa.String(60), nullable=False),
    )
    op.create_index("ix_webhooks_population", "webhooks", ["population"])
    op.create_table(
        "deliveries",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("webhook", sa.String(40), sa.ForeignKey("webhooks.id"), nullable=False),
        sa.Column("event", sa.String(40), nullable=False),
        sa.Column("body", sa.JSON, nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("next_at", sa.Float, nullable=False),
        sa.Column("created", sa.String(20), nullable=False),
        sa.Column("delivered", sa.String(20), nullable=True),
        sa.Column("failure", sa.String(200), nullable=True),
    )
    op.create_index("ix_deliveries_webhook", "deliveries", ["webhook"])
    op.create_index("ix_deliveries_state", "deliveries", ["state"])
    op.create_table(
        "erasures",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("population", sa.String(40), sa.ForeignKey("populations.id"), nullable=False),
        sa.Column("batch", sa.String(40), nullable=True),
        sa.Column("id_digest", sa.String(32), nullable=False),
        sa.Column("state", sa.String(12), nullable=False),
        sa.Column("effect", sa.String(40), nullable=True),
        sa.Column("requested", sa.String(20), nullable=False),
        sa.Column("requested_by", sa.String(60), nullable=False),
        sa.Column("applied", sa.String(20), nullable=True),
        sa.UniqueConstraint("population", "id_digest"),
    )
    for name in ("population", "batch", "state"):
        op.create_index(f"ix_erasures_{name}", "erasures", [name])


def downgrade() -> None:
    for name in ("erasures", "deliveries", "webhooks"):
        op.drop_table(name)
    op.drop_index("ix_idempotency_batch", "idempotency")
    op.drop_index("ix_batches_seal_at", "batches")
    for table, columns in _added().items():
        for column in columns:
            op.drop_column(table, column.name)
