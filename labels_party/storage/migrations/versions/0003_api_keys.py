"""API keys may expire, and show the day of their last use."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("api_keys", sa.Column("expires", sa.String(20)))
    op.add_column("api_keys", sa.Column("last_used", sa.String(10)))


def downgrade() -> None:
    # an earlier version would take an expired key for a valid one
    op.execute("UPDATE api_keys SET revoked = expires WHERE revoked IS NULL AND expires IS NOT NULL")
    op.drop_column("api_keys", "last_used")
    op.drop_column("api_keys", "expires")
