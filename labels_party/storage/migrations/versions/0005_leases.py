"""Leases of work that one of several replicas does at a time."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "leases",
        sa.Column("work", sa.String(80), primary_key=True),
        sa.Column("owner", sa.String(120), nullable=False),
        sa.Column("until", sa.Float, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("leases")
