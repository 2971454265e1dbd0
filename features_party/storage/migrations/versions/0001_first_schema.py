"""The first schema: what was received, feature tables, trainings, models, API keys, the audit store."""

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
        sa.Column("kind", sa.String(40), nullable=False, index=True),
        sa.Column("population", sa.String(64), index=True),
        sa.Column("batch", sa.String(64), index=True),
        sa.Column("release", sa.String(64), index=True),
        sa.Column("epsilon_nano", sa.BigInteger, nullable=False),
        sa.Column("delta_atto", sa.BigInteger, nullable=False),
        sa.Column("at", sa.String(20)),
        sa.Index("ix_audit_events_batch_kind", "batch", "kind"),
    )
    op.create_table(
        "seen_heads",
        sa.Column("store", sa.String(64), primary_key=True),
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("key_id", sa.String(80), nullable=False, index=True),
        sa.Column("made", sa.String(20), nullable=False),
        sa.Column("seen", sa.String(20), nullable=False),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("secret_sha256", sa.String(64), nullable=False, unique=True),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("audience", sa.String(200)),
        sa.Column("created", sa.String(20), nullable=False),
        sa.Column("revoked", sa.String(20)),
        sa.Column("expires", sa.String(20)),
        sa.Column("last_used", sa.String(10)),
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
        "received",
        sa.Column("key_id", sa.String(80), primary_key=True),
        sa.Column("sort", sa.String(8), primary_key=True),
        sa.Column("name", sa.String(64), primary_key=True, index=True),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False, unique=True),
        sa.Column("population", sa.String(64), nullable=False),
        sa.Column("population_name", sa.String(400), nullable=False),
        sa.Column("batch", sa.String(64), nullable=False),
        sa.Column("mechanism", sa.String(400), nullable=False),
        sa.Column("n", sa.BigInteger, nullable=False),
        sa.Column("epsilon", sa.JSON, nullable=False),
        sa.Column("accepted", sa.String(20), nullable=False),
        sa.Column("event", sa.BigInteger, nullable=False, unique=True),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("receipt", sa.String(64), nullable=False, unique=True),
        sa.UniqueConstraint("key_id", "position"),
    )
    op.create_table(
        "trainings",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("state", sa.String(12), nullable=False, index=True),
        sa.Column("request", sa.JSON, nullable=False),
        sa.Column("step", sa.String(200), nullable=False),
        sa.Column("share", sa.Float, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("model", sa.String(40)),
        sa.Column("problem", sa.JSON),
        sa.Column("created", sa.String(20), nullable=False),
        sa.Column("finished", sa.String(20)),
        sa.Column("name", sa.String(200)),
        sa.Column("note", sa.String(2000)),
        sa.Column("revision", sa.Integer, nullable=False, server_default="1"),
        sa.Column("cancel_requested", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("started", sa.String(20)),
    )
    op.create_table(
        "models",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("training", sa.String(40), nullable=False, index=True),
        sa.Column("kind", sa.String(12), nullable=False),
        sa.Column("loss", sa.String(40), nullable=False),
        sa.Column("releases", sa.JSON, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("created", sa.String(20), nullable=False),
        sa.Column("calibration", sa.String(64)),
    )
    op.create_table(
        "idempotency",
        sa.Column("caller", sa.String(40), primary_key=True),
        sa.Column("key", sa.String(200), primary_key=True),
        sa.Column("body_mac", sa.String(64), nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("answer", sa.JSON, nullable=False),
        sa.Column("batch", sa.String(40), index=True),
        sa.Column("claimed_until", sa.Float),
        sa.Column("created", sa.Float, nullable=False, server_default="0"),
    )
    op.create_index("ix_idempotency_age", "idempotency", ["caller", "batch", "created"])
    for statement in append_only_ddl(op.get_bind().dialect.name):
        op.execute(statement)


def downgrade() -> None:
    for statement in append_only_drop(op.get_bind().dialect.name):
        op.execute(statement)
    ours = (
        "idempotency",
        "models",
        "trainings",
        "received",
        "feature_tables",
        "api_keys",
        "seen_heads",
        "audit_events",
    )
    for table in ours:
        op.drop_table(table)
