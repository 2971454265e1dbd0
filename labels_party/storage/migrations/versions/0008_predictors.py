"""Predictors, and which answer each of their queries has."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.create_table(
        "predictors",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("batch", sa.String(40), sa.ForeignKey("batches.id"), nullable=False, index=True),
        sa.Column("state", sa.String(10), nullable=False, index=True),
        sa.Column("plan", sa.JSON, nullable=False),
        sa.Column("created", sa.String(20), nullable=False),
        sa.Column("created_by", sa.String(60), nullable=False),
        sa.Column("trained", sa.String(20)),
        sa.Column("state_key", sa.String(300)),
        sa.Column("features_key", sa.String(300), nullable=False),
        sa.Column("problem", sa.JSON),
    )
    op.create_table(
        "predictions",
        sa.Column("predictor", sa.String(40), sa.ForeignKey("predictors.id"), primary_key=True),
        sa.Column("query", sa.String(64), primary_key=True),
        sa.Column("answer", sa.String(40), sa.ForeignKey("answers.id"), nullable=False, unique=True),
    )


def downgrade() -> None:
    op.drop_table("predictions")
    op.drop_table("predictors")
