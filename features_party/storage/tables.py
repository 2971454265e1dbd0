"""Tables of the features party. Ids are ours and random, except for the `name` of a document: its labels party chose
it."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from label_dp.audit.store import SAME_EVENT, audit_table, heads_table
from label_dp.store.apikeys import apikey_table
from label_dp.store.database import Database
from label_dp.store.idempotency import idempotency_table
from label_dp.store.migrations import prepare
from label_dp.store.sessions import session_table

MIGRATIONS = Path(__file__).parent / "migrations"
HEAD = "0001"
APPEND_ONLY = {"audit_events": SAME_EVENT}  # the database itself refuses changes

metadata = sa.MetaData()
audit_events = audit_table(metadata)
seen_heads = heads_table(metadata)
api_keys = apikey_table(metadata)
sessions = session_table(metadata)

feature_tables = sa.Table(
    "feature_tables",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("name", sa.String(200), nullable=False),
    sa.Column("id_column", sa.String(200), nullable=False),
    # of an upload: a file name inside the home; otherwise a path relative to the configured data folder
    sa.Column("uploaded", sa.Boolean, nullable=False),
    sa.Column("path", sa.String(1000), nullable=False),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("columns", sa.JSON, nullable=False),
    sa.Column("created", sa.String(20), nullable=False),
)

# accepted messages and answers, each with its receipt, which is in the audit event `event`
received = sa.Table(
    "received",
    metadata,
    # a labels party chooses its ids, so they say nothing about another's
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
    # of the receipt: its place in our list for this key, and its digest
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Column("receipt", sa.String(64), nullable=False, unique=True),
    sa.UniqueConstraint("key_id", "position"),
)

trainings = sa.Table(
    "trainings",
    metadata,
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
    # counts changes; the id of a server-sent event
    sa.Column("revision", sa.Integer, nullable=False, server_default="1"),
    sa.Column("cancel_requested", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("started", sa.String(20)),
    # loss curves so far: names, and places with losses
    sa.Column("losses", sa.JSON),
)

models = sa.Table(
    "models",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("training", sa.String(40), nullable=False, index=True),
    sa.Column("kind", sa.String(12), nullable=False),
    sa.Column("loss", sa.String(40), nullable=False),
    sa.Column("releases", sa.JSON, nullable=False),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("created", sa.String(20), nullable=False),
    # the answer whose map its predictions go through
    sa.Column("calibration", sa.String(64)),
    # what tells it from others in a list: `models.card.summary`
    sa.Column("summary", sa.JSON(none_as_null=True)),
)

# a name that a person gives a model, as model registries do; one model has it at a time
model_aliases = sa.Table(
    "model_aliases",
    metadata,
    sa.Column("alias", sa.String(40), primary_key=True),
    sa.Column("model", sa.String(40), nullable=False, index=True),
)

# whose predictions were sent for a calibration that was asked for
scored_models = sa.Table(
    "scored_models",
    metadata,
    sa.Column("answer", sa.String(64), primary_key=True),
    sa.Column("model_sha256", sa.String(64), nullable=False),
)

idempotency = idempotency_table(metadata)


def migrate(database: Database) -> None:
    """Migrate the database to this version's schema."""
    prepare(database, MIGRATIONS, HEAD, metadata, APPEND_ONLY)
