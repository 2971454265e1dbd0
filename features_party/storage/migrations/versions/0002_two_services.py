"""Trainings can be named, cancelled and followed by revision; idempotency keys of POST calls."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

ADDED = ("name", "note", "revision", "cancel_requested", "started")


def upgrade() -> None:
    op.add_column("trainings", sa.Column("name", sa.String(200)))
    op.add_column("trainings", sa.Column("note", sa.String(2000)))
    op.add_column("trainings", sa.Column("revision", sa.Integer, nullable=False, server_default="1"))
    op.add_column("trainings", sa.Column("cancel_requested", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("trainings", sa.Column("started", sa.String(20)))
    op.create_table(
        "idempotency",
        sa.Column("caller", sa.String(40), primary_key=True),
        sa.Column("key", sa.String(200), primary_key=True),
        sa.Column("body_mac", sa.String(64), nullable=False),
        sa.Column("holder", sa.String(32), nullable=False),
        sa.Column("claimed_until", sa.Float),
        sa.Column("status", sa.Integer),
        sa.Column("answer", sa.JSON),
        sa.Column("created", sa.String(20), nullable=False),
    )
    op.create_index("ix_idempotency_created", "idempotency", ["created"])


def downgrade() -> None:
    op.drop_table("idempotency")
    # what the first schema has no state for would be run again by its worker
    op.execute("UPDATE trainings SET state = 'failed' WHERE state = 'cancelled'")
    for column in ADDED:
        op.drop_column("trainings", column)
