"""Populations may declare a lifetime δ per example; those that are there allow pure ε only, as before."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("populations", sa.Column("lifetime_delta_atto", sa.BigInteger, nullable=False, server_default="0"))


def downgrade() -> None:
    # an earlier version charges no δ: what was spent stays in the audit events, which are never migrated
    op.drop_column("populations", "lifetime_delta_atto")
