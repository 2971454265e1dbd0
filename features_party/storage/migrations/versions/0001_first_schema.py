"""The first schema: feature tables, accepted messages, trainings, models, API keys, the audit store."""

import sqlalchemy as sa
from alembic import op

from shared.audit.store import append_only_ddl, append_only_drop

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "audit_events",
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("digest", sa.String(64), nullable=False, unique=True),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("population", sa.String(64)),
        sa.Column("batch", sa.String(64)),
        sa.Column("release", sa.String(64)),
        sa.Column("epsilon_nano", sa.BigInteger, nullable=False),
        sa.Column("delta_atto", sa.BigInteger, nullable=False),
    )
    for column in ("population", "batch", "release"):
        op.create_index(f"ix_audit_events_{column}", "audit_events", [column])
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("secret_sha256", sa.String(64), nullable=False, unique=True),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("audience", sa.String(200)),
        sa.Column("created", sa.String(20), nullable=False),
        sa.Column("revoked", sa.String(20)),
    )
    op.create_table(
        "feature_tables",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("id_column", sa.String(200), nullable=False),
        sa.Column("uploaded", sa.Boolean, nullable=False),
        sa.Column("path", sa.String(1000), nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("columns", sa.JSON, nullable=False),
        sa.Column("created", sa.String(20), nullable=False),
    )
    op.create_table(
        "messages",
        sa.Column("key_id", sa.String(80), primary_key=True),
        sa.Column("release", sa.String(64), primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False, unique=True),
        sa.Column("population", sa.String(64), nullable=False),
        sa.Column("batch", sa.String(64), nullable=False),
        sa.Column("mechanism", sa.String(400), nullable=False),
        sa.Column("n", sa.BigInteger, nullable=False),
        sa.Column("epsilon", sa.JSON, nullable=False),
        sa.Column("folder", sa.String(200), nullable=False, unique=True),
        sa.Column("accepted", sa.String(20), nullable=False),
    )
    op.create_index("ix_messages_release", "messages", ["release"])
    op.create_index("ix_messages_population", "messages", ["population"])
    op.create_table(
        "trainings",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("state", sa.String(12), nullable=False),
        sa.Column("request", sa.JSON, nullable=False),
        sa.Column("step", sa.String(200), nullable=False),
        sa.Column("share", sa.Float, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("model", sa.String(40)),
        sa.Column("problem", sa.JSON),
        sa.Column("created", sa.String(20), nullable=False),
        sa.Column("finished", sa.String(20)),
    )
    op.create_index("ix_trainings_state", "trainings", ["state"])
    op.create_table(
        "models",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("training", sa.String(40), nullable=False),
        sa.Column("kind", sa.String(12), nullable=False),
        sa.Column("loss", sa.String(40), nullable=False),
        sa.Column("releases", sa.JSON, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("created", sa.String(20), nullable=False),
    )
    op.create_index("ix_models_training", "models", ["training"])
    for statement in append_only_ddl(op.get_bind().dialect.name):
        op.execute(statement)


def downgrade() -> None:
    for statement in append_only_drop(op.get_bind().dialect.name):
        op.execute(statement)
    for table in ("models", "trainings", "messages", "feature_tables", "api_keys", "audit_events"):
        op.drop_table(table)
