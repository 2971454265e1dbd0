"""Accepted answers get a table; receipts of messages and answers are one list, so they leave the messages' table."""

import base64
import hashlib
import json
import re
from typing import Any

import sqlalchemy as sa
from alembic import op

from shared.errors import Unavailable
from shared.privacy import Epsilon, EpsilonSplit, parse_delta

revision = "0005"
down_revision = "0004"

COLUMNS = ("receipt_event", "receipt_digest", "receipt_position")
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def upgrade() -> None:
    receipts = op.create_table(
        "receipts",
        sa.Column("key_id", sa.String(80), primary_key=True),
        sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("digest", sa.String(64), nullable=False, unique=True),
        sa.Column("event", sa.BigInteger, nullable=False, unique=True),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("subject", sa.String(64), nullable=False),
    )
    answers = op.create_table(
        "answers",
        sa.Column("key_id", sa.String(80), primary_key=True),
        sa.Column("answer", sa.String(64), primary_key=True, index=True),
        sa.Column("digest", sa.String(64), nullable=False, unique=True),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("population", sa.String(64), nullable=False, index=True),
        sa.Column("batch", sa.String(64), nullable=False),
        sa.Column("n", sa.BigInteger, nullable=False),
        sa.Column("epsilon", sa.JSON, nullable=False),
        sa.Column("file", sa.String(200), nullable=False, unique=True),
        sa.Column("accepted", sa.String(20), nullable=False),
    )
    op.drop_index("ix_messages_receipt", "messages")
    for column in COLUMNS:
        op.drop_column("messages", column)
    # the audit events hold all of it, also what an earlier version accepted
    for sequence, kind, body in _accepted():
        event = json.loads(bytes(body))
        if kind == "answer-accepted":
            op.execute(sa.insert(answers).values(**_answer(event)))
        if "receipt" in event["details"]:
            op.execute(sa.insert(receipts).values(**_receipt(event), event=sequence, kind=kind))


def _accepted() -> list[Any]:
    query = "SELECT sequence, kind, body FROM audit_events WHERE kind IN ('message-accepted', 'answer-accepted')"
    return list(op.get_bind().execute(sa.text(query)).all())


def _receipt(event: dict[str, Any]) -> dict[str, Any]:
    payload = base64.b64decode(event["details"]["receipt"]["payload"])
    receipt = json.loads(payload)
    return {
        "key_id": receipt["labels_key_id"],
        "position": receipt["position"],
        "digest": hashlib.sha256(payload).hexdigest(),
        "subject": receipt["release"],
    }


def _answer(event: dict[str, Any]) -> dict[str, Any]:
    subject, details, nano = event["subject"], event["details"], event["epsilon_nano"]
    clip, prior, randomize = Epsilon(nano["clip"]), Epsilon(nano["prior"]), Epsilon(nano["randomize"])
    name = subject["release"]
    plain = name if PLAIN.fullmatch(name) else hashlib.sha256(name.encode()).hexdigest()[:32]
    return {
        "key_id": details["key_id"],
        "answer": name,
        "digest": details["document_digest"],
        "kind": details["answer"],
        "population": subject["population"],
        "batch": subject["batch"],
        "n": details["n"],
        "epsilon": EpsilonSplit(clip, prior, randomize, parse_delta(event["delta"])).as_json(),
        "file": f"{plain}-{details['document_digest'][:32]}.dsse.json",
        "accepted": event["time"],
    }


def downgrade() -> None:
    connection = op.get_bind()
    listed = connection.execute(sa.text("SELECT count(*) FROM receipts WHERE kind = 'answer-accepted'")).scalar()
    if listed:
        # an earlier version would go on from the last message's receipt, and so sign a second history
        raise Unavailable("Receipts of answers are in the list; an earlier version cannot continue it.")
    op.add_column("messages", sa.Column("receipt_position", sa.BigInteger))
    op.add_column("messages", sa.Column("receipt_digest", sa.String(64)))
    op.add_column("messages", sa.Column("receipt_event", sa.BigInteger))
    op.create_index("ix_messages_receipt", "messages", ["key_id", "receipt_position"], unique=True)
    for column, source in zip(COLUMNS, ("event", "digest", "position"), strict=True):
        op.execute(
            f"UPDATE messages SET {column} = (SELECT {source} FROM receipts "  # noqa: S608 - constants only
            "WHERE receipts.key_id = messages.key_id AND receipts.subject = messages.release)"
        )
    # answers stay in the audit events and in the home
    op.drop_table("answers")
    op.drop_table("receipts")
