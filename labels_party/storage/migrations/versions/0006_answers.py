"""Answers (charged computations with one signed result) and what audiences may charge with them."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "answers",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("batch", sa.String(40), sa.ForeignKey("batches.id"), nullable=False, index=True),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("state", sa.String(10), nullable=False, index=True),
        sa.Column("request", sa.JSON, nullable=False),
        sa.Column("epsilon", sa.JSON, nullable=False),
        sa.Column("epsilon_nano", sa.BigInteger, nullable=False),
        sa.Column("audiences", sa.JSON, nullable=False),
        sa.Column("requested_by", sa.String(60), nullable=False),
        sa.Column("by_audience", sa.String(200)),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("lease_owner", sa.String(120)),
        sa.Column("lease_until", sa.Float),
        sa.Column("created", sa.String(20), nullable=False),
        sa.Column("published", sa.String(20)),
        sa.Column("envelope", sa.LargeBinary),
        sa.Column("sha256", sa.String(64)),
        sa.Column("problem", sa.JSON),
    )
    op.create_table(
        "allowances",
        sa.Column("batch", sa.String(40), sa.ForeignKey("batches.id"), primary_key=True),
        sa.Column("kind", sa.String(40), primary_key=True),
        sa.Column("epsilon_nano", sa.BigInteger, nullable=False),
        sa.Column("set", sa.String(20), nullable=False),
        sa.Column("set_by", sa.String(60), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("allowances")
    op.drop_table("answers")
