"""The labels party's tables. No column holds a label or anything derived from one except through a paid release."""

from __future__ import annotations

import sqlalchemy as sa

from label_dp.audit.store import SAME_EVENT, audit_table, heads_table
from label_dp.store.apikeys import MOST_ACTOR, apikey_table
from label_dp.store.idempotency import idempotency_table
from label_dp.store.sessions import session_table

metadata = sa.MetaData()
HEAD = "0001"
# tables that the database itself keeps from changing, and of each what an insert would replace
APPEND_ONLY = {
    "audit_events": SAME_EVENT,
    "receipts": "(key_id = NEW.key_id AND labels_key_id = NEW.labels_key_id AND position = NEW.position) "
    "OR digest = NEW.digest OR event = NEW.event OR (audience = NEW.audience AND work = NEW.work)",
}

audit_events = audit_table(metadata)
seen_heads = heads_table(metadata)
api_keys = apikey_table(metadata)
sessions = session_table(metadata)

installation = sa.Table(
    "installation",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    # a keyed MAC of a constant: notices that the folder's secret is not the one the digests were made with
    sa.Column("secret_check", sa.String(64), nullable=False),
    # the number of the wrapping key under which every row of `batch_keys` lies
    sa.Column("wrapping_key", sa.Integer, nullable=False),
)

populations = sa.Table(
    "populations",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("name", sa.String(200), nullable=False, unique=True),
    sa.Column("label", sa.String(200), nullable=False),
    sa.Column("domain", sa.JSON, nullable=False),
    sa.Column("out_of_domain", sa.String(10), nullable=False),
    sa.Column("missing_label", sa.String(100)),
    sa.Column("audiences", sa.JSON, nullable=False),
    sa.Column("lifetime_nano", sa.BigInteger, nullable=False),
    sa.Column("unit_column", sa.String(200)),
    sa.Column("max_examples_per_unit", sa.Integer),
    sa.Column("created", sa.String(20), nullable=False),
    # a second person must approve a release before anything is charged
    sa.Column("four_eyes", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("retention_days", sa.Integer),
    sa.Column("alert_percent", sa.JSON),
    # atto-δ per example; 0: only pure ε-DP mechanisms may be charged
    sa.Column("lifetime_delta_atto", sa.BigInteger, nullable=False, server_default="0"),
    # the rule by which conversion events become its labels
    sa.Column("events", sa.JSON(none_as_null=True)),
    # the body of people that shares one lifetime; declared by its audit event alone
    sa.Column("people", sa.String(64), index=True),
)

batches = sa.Table(
    "batches",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("population", sa.ForeignKey("populations.id"), nullable=False, index=True),
    sa.Column("label", sa.String(200), nullable=False, index=True),
    sa.Column("state", sa.String(10), nullable=False),
    sa.Column("presence", sa.String(10), nullable=False),
    # counts every accepted upload, so that a check made outside a transaction can tell whether it is stale
    sa.Column("version", sa.Integer, nullable=False, default=0),
    sa.Column("created", sa.String(20), nullable=False),
    sa.Column("sealed", sa.String(20)),
    sa.Column("seal_order", sa.Integer),
    sa.Column("n", sa.BigInteger),
    sa.Column("id_bytes", sa.BigInteger),
    sa.Column("ids_mac", sa.String(64)),
    # more than a unit may have, so without their label; null where units have no bound
    sa.Column("examples_beyond", sa.BigInteger),
    # the conversion window: at `seal_at` the batch seals, and releases as `release_template` says, by itself
    sa.Column("seal_at", sa.String(20), index=True),
    sa.Column("release_template", sa.JSON(none_as_null=True)),
    sa.Column("scheduled_by", sa.String(MOST_ACTOR)),
    sa.Column("schedule_problem", sa.JSON(none_as_null=True)),
    # set in the transaction that charges the template: it is charged once
    sa.Column("scheduled_release", sa.String(40)),
    sa.Column("purged", sa.String(20)),
    # since when keys that may send labels only are refused, whether or not the seal succeeded
    sa.Column("closed", sa.String(20)),
    # every id of it begins so; none: they may be any. Batches whose prefixes exclude each other share no id
    sa.Column("id_prefix", sa.String(200)),
    # once its digests are in a merged run: the batch whose segment names that run (`labels/history.py`)
    sa.Column("merged_into", sa.String(40)),
    # uploads that wait for the owner's decision
    sa.Column("set_aside", sa.Integer, nullable=False, server_default="0"),
    # where labels come from events: the last window of them before its opening
    sa.Column("events_since", sa.Integer),
    sa.UniqueConstraint("label", "seal_order"),
)

# the events of a data set between two openings or seals of its batches, which have a key of their own (`labels/events`)
event_windows = sa.Table(
    "event_windows",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("id", sa.String(40), nullable=False, unique=True),
    sa.Column("data_set", sa.String(200), nullable=False, index=True),
    sa.Column("over", sa.Boolean, nullable=False),
    sqlite_autoincrement=True,  # a number never comes again: batches remember it
)

# the key under which the objects of a batch or window lie, itself wrapped; its row goes when they do
batch_keys = sa.Table(
    "batch_keys",
    metadata,
    sa.Column("batch", sa.String(40), primary_key=True),
    sa.Column("wrapped_by", sa.Integer, nullable=False),
    sa.Column("wrapped", sa.LargeBinary, nullable=False),
)

segments = sa.Table(
    "segments",
    metadata,
    sa.Column("batch", sa.String(40), primary_key=True),  # or a window of events
    sa.Column("kind", sa.String(10), primary_key=True),  # examples, labels, sealed, runs (sorted id digests), history
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("key", sa.String(300), nullable=False),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("of", sa.String(10), nullable=False, default=""),
    # insert, upsert or delete: of several records of an id the one of the highest segment number counts
    sa.Column("mode", sa.String(10), nullable=False, server_default="insert"),
    sa.Column("start", sa.BigInteger, nullable=False, server_default="0"),  # the first of its rows in the object
)

idempotency = idempotency_table(metadata)

# every insert of a key that may send labels only, until the seal: whether it is set aside is a mark in its row, so that
# as much is written either way. The batch's owner decides of those that are. They depend on labels, so that this is no
# audit event: an export of those is shown to others
set_aside = sa.Table(
    "set_aside",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("batch", sa.ForeignKey("batches.id"), nullable=False),
    sa.Column("sent_by", sa.String(MOST_ACTOR), nullable=False),
    sa.Column("received", sa.String(20), nullable=False),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("key", sa.String(300), nullable=False),  # of its object, and its first row there
    sa.Column("start", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("aside", sa.Boolean, nullable=False),
    # keyed, of who sent which bytes to which batch, and how; null in a repeat, and once the batch is sealed
    sa.Column("body_mac", sa.String(64)),
    sa.Column("decision", sa.String(10)),
    sa.Column("decided", sa.String(20)),
    sa.Column("decided_by", sa.String(MOST_ACTOR)),
    sa.Index("ix_set_aside_same", "batch", "body_mac"),
)

# charged work: what was asked of a sealed batch, and where it stands (`labels_party.work`)
work = sa.Table(
    "work",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("batch", sa.ForeignKey("batches.id"), nullable=False, index=True),
    sa.Column("kind", sa.String(40), nullable=False),
    sa.Column("state", sa.String(10), nullable=False, index=True),
    # what the audit event of its charge, or of the request for it, says besides ε
    sa.Column("asked", sa.JSON, nullable=False),
    # what its kind draws from: public, or already private
    sa.Column("plan", sa.JSON, nullable=False),
    sa.Column("epsilon", sa.JSON, nullable=False),
    sa.Column("epsilon_nano", sa.BigInteger, nullable=False),
    sa.Column("audiences", sa.JSON, nullable=False),
    sa.Column("requested_by", sa.String(MOST_ACTOR), nullable=False),
    # of what an allowance permits, what audiences asked for themselves counts
    sa.Column("by_audience", sa.String(200)),
    # the folder of what was sent for it, a MAC of that, and the key of the owner's table of features
    sa.Column("inputs", sa.String(60), nullable=False),
    sa.Column("inputs_mac", sa.String(64), nullable=False),
    sa.Column("features", sa.String(300), nullable=False),
    sa.Column("approved_by", sa.String(MOST_ACTOR)),
    sa.Column("approved", sa.String(20)),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("lease_owner", sa.String(120)),
    sa.Column("lease_until", sa.Float),
    sa.Column("created", sa.String(20), nullable=False),
    sa.Column("published", sa.String(20)),
    sa.Column("sha256", sa.String(64)),  # of the payload of its signed document
    # the draw whose bytes leave for an object store: no other may follow it
    sa.Column("draft", sa.JSON(none_as_null=True)),
    sa.Column("problem", sa.JSON(none_as_null=True)),
)

# what was published, byte for byte as it is served: files of the home, or (what is drawn in its transaction) here
work_files = sa.Table(
    "work_files",
    metadata,
    sa.Column("work", sa.ForeignKey("work.id"), primary_key=True),
    sa.Column("name", sa.String(128), primary_key=True),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("role", sa.String(10), nullable=False),
    sa.Column("path", sa.String(300)),
    sa.Column("content", sa.LargeBinary),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("sha256", sa.String(64), nullable=False),
)

# work that one of several replicas does at a time; what it may change is fenced elsewhere
leases = sa.Table(
    "leases",
    metadata,
    sa.Column("work", sa.String(80), primary_key=True),
    sa.Column("owner", sa.String(120), nullable=False),
    sa.Column("until", sa.Float, nullable=False),
)

# for look-ups: the receipts themselves are in the audit events `event`; append-only, like these
receipts = sa.Table(
    "receipts",
    metadata,
    # one list is of a receiver's key for a key of ours
    sa.Column("key_id", sa.String(80), primary_key=True),
    sa.Column("labels_key_id", sa.String(80), primary_key=True),
    sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("previous", sa.String(64), nullable=False),
    sa.Column("audience", sa.String(200), nullable=False),
    sa.Column("work", sa.String(40), nullable=False),
    sa.Column("digest", sa.String(64), nullable=False, unique=True),
    sa.Column("event", sa.BigInteger, nullable=False, unique=True),
    sa.UniqueConstraint("audience", "work"),
)

# when a key of an audience first and last fetched something of a release or an answer: days, a note for people
fetches = sa.Table(
    "fetches",
    metadata,
    sa.Column("work", sa.ForeignKey("work.id"), primary_key=True),
    sa.Column("key", sa.String(40), primary_key=True),
    sa.Column("audience", sa.String(200), nullable=False),
    sa.Column("first", sa.String(10), nullable=False),
    sa.Column("last", sa.String(10), nullable=False),
)

webhooks = sa.Table(
    "webhooks",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("population", sa.ForeignKey("populations.id"), index=True),  # none: every population
    sa.Column("url", sa.String(2000), nullable=False),
    sa.Column("events", sa.JSON, nullable=False),
    sa.Column("created", sa.String(20), nullable=False),
    sa.Column("created_by", sa.String(MOST_ACTOR), nullable=False),
)

deliveries = sa.Table(
    "deliveries",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("webhook", sa.ForeignKey("webhooks.id"), nullable=False, index=True),
    sa.Column("event", sa.String(40), nullable=False),
    sa.Column("body", sa.JSON, nullable=False),
    sa.Column("state", sa.String(10), nullable=False, index=True),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("next_at", sa.Float, nullable=False),
    sa.Column("created", sa.String(20), nullable=False),
    sa.Column("delivered", sa.String(20)),
    sa.Column("failure", sa.String(200)),
)

erasures = sa.Table(
    "erasures",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("population", sa.ForeignKey("populations.id"), nullable=False, index=True),
    sa.Column("batch", sa.String(40), index=True),
    sa.Column("id_digest", sa.String(32), nullable=False),  # keyed, as in the runs: the id itself is not kept
    sa.Column("unit_digest", sa.String(32), index=True),  # where the erasure of its unit was asked for
    sa.Column("state", sa.String(12), nullable=False, index=True),
    sa.Column("effect", sa.String(40)),
    sa.Column("requested", sa.String(20), nullable=False),
    sa.Column("requested_by", sa.String(MOST_ACTOR), nullable=False),
    sa.Column("applied", sa.String(20)),
    sa.UniqueConstraint("population", "id_digest"),
)

# units of which no example keeps its label, whenever its batch seals; keyed digests, as in the tallies
erased_units = sa.Table(
    "erased_units",
    metadata,
    sa.Column("population", sa.ForeignKey("populations.id"), primary_key=True),
    sa.Column("unit_digest", sa.String(32), primary_key=True),
    sa.Column("requested", sa.String(20), nullable=False),
    sa.Column("requested_by", sa.String(MOST_ACTOR), nullable=False),
)

# models of raw labels that answer single queries; what they learned lies beside the sealed labels
predictors = sa.Table(
    "predictors",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("batch", sa.ForeignKey("batches.id"), nullable=False, index=True),
    sa.Column("state", sa.String(10), nullable=False, index=True),
    # public: nothing in it is made of labels
    sa.Column("plan", sa.JSON, nullable=False),
    sa.Column("created", sa.String(20), nullable=False),
    sa.Column("created_by", sa.String(MOST_ACTOR), nullable=False),
    sa.Column("trained", sa.String(20)),
    sa.Column("state_key", sa.String(300)),
    sa.Column("features_key", sa.String(300), nullable=False),
    sa.Column("problem", sa.JSON(none_as_null=True)),
)

# a query of a predictor, by the digest of its canonical form, has one answer for ever
predictions = sa.Table(
    "predictions",
    metadata,
    sa.Column("predictor", sa.ForeignKey("predictors.id"), primary_key=True),
    sa.Column("query", sa.String(64), primary_key=True),
    sa.Column("answer", sa.ForeignKey("work.id"), nullable=False, unique=True),
)
