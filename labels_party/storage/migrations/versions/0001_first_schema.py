"""The first schema."""

import sqlalchemy as sa
from alembic import op

from shared.audit.store import append_only_ddl, append_only_drop

revision = "0001"
down_revision = None

# what an insert would replace: of receipts
SAME = (
    "(key_id = NEW.key_id AND labels_key_id = NEW.labels_key_id AND position = NEW.position) "
    "OR digest = NEW.digest OR event = NEW.event "
    "OR (audience = NEW.audience AND release = NEW.release)"
)


def upgrade() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("secret_sha256", sa.String(64), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("audience", sa.String(200)),
        sa.Column("created", sa.String(20), nullable=False),
        sa.Column("revoked", sa.String(20)),
        sa.Column("expires", sa.String(20)),
        sa.Column("last_used", sa.String(10)),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("secret_sha256"),
    )
    op.create_table(
        "audit_events",
        sa.Column("sequence", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("population", sa.String(64)),
        sa.Column("batch", sa.String(64)),
        sa.Column("release", sa.String(64)),
        sa.Column("epsilon_nano", sa.BigInteger, nullable=False),
        sa.Column("delta_atto", sa.BigInteger, nullable=False),
        sa.Column("at", sa.String(20)),
        sa.PrimaryKeyConstraint("sequence"),
        sa.UniqueConstraint("digest"),
    )
    op.create_index("ix_audit_events_batch", "audit_events", ["batch"])
    op.create_index("ix_audit_events_batch_kind", "audit_events", ["batch", "kind"])
    op.create_index("ix_audit_events_kind", "audit_events", ["kind"])
    op.create_index("ix_audit_events_population", "audit_events", ["population"])
    op.create_index("ix_audit_events_release", "audit_events", ["release"])
    op.create_table(
        "idempotency",
        sa.Column("caller", sa.String(40), nullable=False),
        sa.Column("key", sa.String(200), nullable=False),
        sa.Column("body_mac", sa.String(64), nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("answer", sa.JSON, nullable=False),
        sa.Column("batch", sa.String(40)),
        sa.Column("claimed_until", sa.Float),
        sa.Column("created", sa.Float, server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("caller", "key"),
    )
    op.create_index("ix_idempotency_age", "idempotency", ["caller", "batch", "created"])
    op.create_index("ix_idempotency_batch", "idempotency", ["batch"])
    op.create_table(
        "installation",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("secret_check", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "leases",
        sa.Column("work", sa.String(80), nullable=False),
        sa.Column("owner", sa.String(120), nullable=False),
        sa.Column("until", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("work"),
    )
    op.create_table(
        "populations",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("label", sa.String(200), nullable=False),
        sa.Column("domain", sa.JSON, nullable=False),
        sa.Column("out_of_domain", sa.String(10), nullable=False),
        sa.Column("missing_label", sa.String(64)),
        sa.Column("audiences", sa.JSON, nullable=False),
        sa.Column("lifetime_nano", sa.BigInteger, nullable=False),
        sa.Column("unit_column", sa.String(200)),
        sa.Column("max_examples_per_unit", sa.Integer),
        sa.Column("created", sa.String(20), nullable=False),
        sa.Column("four_eyes", sa.Boolean, server_default=sa.false(), nullable=False),
        sa.Column("retention_days", sa.Integer),
        sa.Column("alert_percent", sa.JSON),
        sa.Column("lifetime_delta_atto", sa.BigInteger, server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "receipts",
        sa.Column("key_id", sa.String(80), nullable=False),
        sa.Column("labels_key_id", sa.String(80), nullable=False),
        sa.Column("position", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("previous", sa.String(64), nullable=False),
        sa.Column("audience", sa.String(200), nullable=False),
        sa.Column("release", sa.String(40), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("event", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("key_id", "labels_key_id", "position"),
        sa.UniqueConstraint("audience", "release"),
        sa.UniqueConstraint("digest"),
        sa.UniqueConstraint("event"),
    )
    op.create_table(
        "seen_heads",
        sa.Column("store", sa.String(64), nullable=False),
        sa.Column("sequence", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("key_id", sa.String(80), nullable=False),
        sa.Column("made", sa.String(20), nullable=False),
        sa.Column("seen", sa.String(20), nullable=False),
        sa.PrimaryKeyConstraint("store", "sequence"),
    )
    op.create_index("ix_seen_heads_key_id", "seen_heads", ["key_id"])
    op.create_table(
        "batches",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("population", sa.String(40), nullable=False),
        sa.Column("label", sa.String(200), nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("presence", sa.String(10), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("created", sa.String(20), nullable=False),
        sa.Column("sealed", sa.String(20)),
        sa.Column("seal_order", sa.Integer),
        sa.Column("n", sa.BigInteger),
        sa.Column("id_bytes", sa.BigInteger),
        sa.Column("ids_mac", sa.String(64)),
        sa.Column("seal_at", sa.String(20)),
        sa.Column("release_template", sa.JSON(none_as_null=True)),
        sa.Column("scheduled_by", sa.String(60)),
        sa.Column("schedule_problem", sa.JSON(none_as_null=True)),
        sa.Column("scheduled_release", sa.String(40)),
        sa.Column("purged", sa.String(20)),
        sa.Column("closed", sa.String(20)),
        sa.ForeignKeyConstraint(
            ["population"],
            ["populations.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("label", "seal_order"),
    )
    op.create_index("ix_batches_label", "batches", ["label"])
    op.create_index("ix_batches_population", "batches", ["population"])
    op.create_index("ix_batches_seal_at", "batches", ["seal_at"])
    op.create_table(
        "erasures",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("population", sa.String(40), nullable=False),
        sa.Column("batch", sa.String(40)),
        sa.Column("id_digest", sa.String(32), nullable=False),
        sa.Column("state", sa.String(12), nullable=False),
        sa.Column("effect", sa.String(40)),
        sa.Column("requested", sa.String(20), nullable=False),
        sa.Column("requested_by", sa.String(60), nullable=False),
        sa.Column("applied", sa.String(20)),
        sa.ForeignKeyConstraint(
            ["population"],
            ["populations.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("population", "id_digest"),
    )
    op.create_index("ix_erasures_batch", "erasures", ["batch"])
    op.create_index("ix_erasures_population", "erasures", ["population"])
    op.create_index("ix_erasures_state", "erasures", ["state"])
    op.create_table(
        "webhooks",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("population", sa.String(40)),
        sa.Column("url", sa.String(2000), nullable=False),
        sa.Column("events", sa.JSON, nullable=False),
        sa.Column("created", sa.String(20), nullable=False),
        sa.Column("created_by", sa.String(60), nullable=False),
        sa.ForeignKeyConstraint(
            ["population"],
            ["populations.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_webhooks_population", "webhooks", ["population"])
    op.create_table(
        "allowances",
        sa.Column("batch", sa.String(40), nullable=False),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("epsilon_nano", sa.BigInteger, nullable=False),
        sa.Column("set", sa.String(20), nullable=False),
        sa.Column("set_by", sa.String(60), nullable=False),
        sa.ForeignKeyConstraint(
            ["batch"],
            ["batches.id"],
        ),
        sa.PrimaryKeyConstraint("batch", "kind"),
    )
    op.create_table(
        "deliveries",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("webhook", sa.String(40), nullable=False),
        sa.Column("event", sa.String(40), nullable=False),
        sa.Column("body", sa.JSON, nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("next_at", sa.Float, nullable=False),
        sa.Column("created", sa.String(20), nullable=False),
        sa.Column("delivered", sa.String(20)),
        sa.Column("failure", sa.String(200)),
        sa.ForeignKeyConstraint(
            ["webhook"],
            ["webhooks.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_deliveries_state", "deliveries", ["state"])
    op.create_index("ix_deliveries_webhook", "deliveries", ["webhook"])
    op.create_table(
        "predictors",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("batch", sa.String(40), nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("plan", sa.JSON, nullable=False),
        sa.Column("created", sa.String(20), nullable=False),
        sa.Column("created_by", sa.String(60), nullable=False),
        sa.Column("trained", sa.String(20)),
        sa.Column("state_key", sa.String(300)),
        sa.Column("features_key", sa.String(300), nullable=False),
        sa.Column("problem", sa.JSON(none_as_null=True)),
        sa.ForeignKeyConstraint(
            ["batch"],
            ["batches.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_predictors_batch", "predictors", ["batch"])
    op.create_index("ix_predictors_state", "predictors", ["state"])
    op.create_table(
        "segments",
        sa.Column("batch", sa.String(40), nullable=False),
        sa.Column("kind", sa.String(10), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("key", sa.String(300), nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("of", sa.String(10), nullable=False),
        sa.Column("mode", sa.String(10), server_default="insert", nullable=False),
        sa.ForeignKeyConstraint(
            ["batch"],
            ["batches.id"],
        ),
        sa.PrimaryKeyConstraint("batch", "kind", "number"),
    )
    op.create_table(
        "set_aside",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("batch", sa.String(40), nullable=False),
        sa.Column("sent_by", sa.String(60), nullable=False),
        sa.Column("received", sa.String(20), nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("key", sa.String(300), nullable=False),
        sa.Column("run", sa.String(300), nullable=False),
        sa.Column("decision", sa.String(10)),
        sa.Column("decided", sa.String(20)),
        sa.Column("decided_by", sa.String(60)),
        sa.ForeignKeyConstraint(
            ["batch"],
            ["batches.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_set_aside_batch", "set_aside", ["batch"])
    op.create_table(
        "work",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("batch", sa.String(40), nullable=False),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("asked", sa.JSON, nullable=False),
        sa.Column("plan", sa.JSON, nullable=False),
        sa.Column("epsilon", sa.JSON, nullable=False),
        sa.Column("epsilon_nano", sa.BigInteger, nullable=False),
        sa.Column("audiences", sa.JSON, nullable=False),
        sa.Column("requested_by", sa.String(60), nullable=False),
        sa.Column("by_audience", sa.String(200)),
        sa.Column("inputs", sa.String(60), nullable=False),
        sa.Column("inputs_mac", sa.String(64), nullable=False),
        sa.Column("features", sa.String(300), nullable=False),
        sa.Column("approved_by", sa.String(60)),
        sa.Column("approved", sa.String(20)),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("lease_owner", sa.String(120)),
        sa.Column("lease_until", sa.Float),
        sa.Column("created", sa.String(20), nullable=False),
        sa.Column("published", sa.String(20)),
        sa.Column("sha256", sa.String(64)),
        sa.Column("problem", sa.JSON(none_as_null=True)),
        sa.ForeignKeyConstraint(
            ["batch"],
            ["batches.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_work_batch", "work", ["batch"])
    op.create_index("ix_work_state", "work", ["state"])
    op.create_table(
        "predictions",
        sa.Column("predictor", sa.String(40), nullable=False),
        sa.Column("query", sa.String(64), nullable=False),
        sa.Column("answer", sa.String(40), nullable=False),
        sa.ForeignKeyConstraint(
            ["answer"],
            ["work.id"],
        ),
        sa.ForeignKeyConstraint(
            ["predictor"],
            ["predictors.id"],
        ),
        sa.PrimaryKeyConstraint("predictor", "query"),
        sa.UniqueConstraint("answer"),
    )
    op.create_table(
        "work_files",
        sa.Column("work", sa.String(40), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("role", sa.String(10), nullable=False),
        sa.Column("path", sa.String(300)),
        sa.Column("content", sa.LargeBinary),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.ForeignKeyConstraint(
            ["work"],
            ["work.id"],
        ),
        sa.PrimaryKeyConstraint("work", "name"),
    )
    dialect = op.get_bind().dialect.name
    for statement in [*append_only_ddl(dialect), *append_only_ddl(dialect, "receipts", SAME)]:
        op.execute(statement)


def downgrade() -> None:
    dialect = op.get_bind().dialect.name
    for statement in [*append_only_drop(dialect, "receipts"), *append_only_drop(dialect)]:
        op.execute(statement)
    for table in (
        "work_files",
        "predictions",
        "work",
        "set_aside",
        "segments",
        "predictors",
        "deliveries",
        "allowances",
        "webhooks",
        "erasures",
        "batches",
        "seen_heads",
        "receipts",
        "populations",
        "leases",
        "installation",
        "idempotency",
        "audit_events",
        "api_keys",
    ):
        op.drop_table(table)
