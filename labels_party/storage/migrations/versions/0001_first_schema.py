"""The first schema: populations, batches, segments, releases, the audit store."""

import sqlalchemy as sa
from alembic import op

from shared.audit.store import append_only_ddl, append_only_drop

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("secret_sha256", sa.String(64), nullable=False, unique=True),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("audience", sa.String(200), nullable=True),
        sa.Column("created", sa.String(20), nullable=False),
        sa.Column("revoked", sa.String(20), nullable=True),
    )
    op.create_table(
        "audit_events",
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("digest", sa.String(64), nullable=False, unique=True),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("population", sa.String(64), nullable=True),
        sa.Column("batch", sa.String(64), nullable=True),
        sa.Column("release", sa.String(64), nullable=True),
        sa.Column("epsilon_nano", sa.BigInteger, nullable=False),
        sa.Column("delta_atto", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_audit_events_population", "audit_events", ["population"])
    op.create_index("ix_audit_events_batch", "audit_events", ["batch"])
    op.create_index("ix_audit_events_release", "audit_events", ["release"])
    op.create_table(
        "idempotency",
        sa.Column("caller", sa.String(40), primary_key=True),
        sa.Column("key", sa.String(200), primary_key=True),
        sa.Column("body_mac", sa.String(64), nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("answer", sa.JSON, nullable=False),
    )
    op.create_table(
        "installation",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("secret_check", sa.String(64), nullable=False),
    )
    op.create_table(
        "populations",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("name", sa.String(200), nullable=False, unique=True),
        sa.Column("label", sa.String(200), nullable=False),
        sa.Column("domain", sa.JSON, nullable=False),
        sa.Column("out_of_domain", sa.String(10), nullable=False),
        sa.Column("missing_label", sa.String(64), nullable=True),
        sa.Column("audiences", sa.JSON, nullable=False),
        sa.Column("lifetime_nano", sa.BigInteger, nullable=False),
        sa.Column("unit_column", sa.String(200), nullable=True),
        sa.Column("max_examples_per_unit", sa.Integer, nullable=True),
        sa.Column("created", sa.String(20), nullable=False),
    )
    op.create_table(
        "batches",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("population", sa.String(40), sa.ForeignKey("populations.id"), nullable=False),
        sa.Column("label", sa.String(200), nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("presence", sa.String(10), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("created", sa.String(20), nullable=False),
        sa.Column("sealed", sa.String(20), nullable=True),
        sa.Column("seal_order", sa.Integer, nullable=True),
        sa.Column("n", sa.BigInteger, nullable=True),
        sa.Column("id_bytes", sa.BigInteger, nullable=True),
        sa.Column("ids_mac", sa.String(64), nullable=True),
        sa.UniqueConstraint("label", "seal_order"),
    )
    op.create_index("ix_batches_label", "batches", ["label"])
    op.create_index("ix_batches_population", "batches", ["population"])
    op.create_table(
        "releases",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("batch", sa.String(40), sa.ForeignKey("batches.id"), nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("plan", sa.JSON, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("lease_owner", sa.String(120), nullable=True),
        sa.Column("lease_until", sa.Float, nullable=True),
        sa.Column("created", sa.String(20), nullable=False),
        sa.Column("published", sa.String(20), nullable=True),
        sa.Column("manifest_sha256", sa.String(64), nullable=True),
        sa.Column("problem", sa.JSON, nullable=True),
    )
    op.create_index("ix_releases_batch", "releases", ["batch"])
    op.create_index("ix_releases_state", "releases", ["state"])
    op.create_table(
        "segments",
        sa.Column("batch", sa.String(40), sa.ForeignKey("batches.id"), primary_key=True),
        sa.Column("kind", sa.String(10), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("key", sa.String(300), nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("of", sa.String(10), nullable=False),
    )
    op.create_table(
        "release_files",
        sa.Column("release", sa.String(40), sa.ForeignKey("releases.id"), primary_key=True),
        sa.Column("name", sa.String(128), primary_key=True),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("role", sa.String(10), nullable=False),
        sa.Column("path", sa.String(300), nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
    )
    for statement in append_only_ddl(op.get_bind().dialect.name):
        op.execute(statement)


def downgrade() -> None:
    for statement in append_only_drop(op.get_bind().dialect.name):
        op.execute(statement)
    op.drop_table("release_files")
    op.drop_table("segments")
    op.drop_table("releases")
    op.drop_table("batches")
    op.drop_table("populations")
    op.drop_table("installation")
    op.drop_table("idempotency")
    op.drop_table("audit_events")
    op.drop_table("api_keys")
