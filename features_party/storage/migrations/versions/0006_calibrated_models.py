"""Models name the calibration that their predictions go through; accepted answers name their population."""

import hashlib
import json

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

MODELS = sa.table("models", sa.column("id"), sa.column("calibration"))
ANSWERS = sa.table("answers", sa.column("key_id"), sa.column("answer"), sa.column("population_name"))


def upgrade() -> None:
    op.add_column("models", sa.Column("calibration", sa.String(64)))
    op.add_column("answers", sa.Column("population_name", sa.String(400), nullable=False, server_default=""))
    connection = op.get_bind()
    events = connection.execute(sa.text("SELECT body FROM audit_events WHERE kind = 'answer-accepted'"))
    for (body,) in events.all():
        event = json.loads(bytes(body))
        name, key_id, answer = (
            event["subject"]["population_name"],
            event["details"]["key_id"],
            event["subject"]["release"],
        )
        same = (ANSWERS.c.key_id == key_id) & (ANSWERS.c.answer == answer)
        op.execute(sa.update(ANSWERS).where(same).values(population_name=name))
    _mark_calibrated(connection)


def _mark_calibrated(connection: sa.Connection) -> None:
    """The id of a calibrated model is made of that of its source, the document and the way it is applied."""
    models = {row.id for row in connection.execute(sa.text("SELECT id FROM models"))}
    # a training remembers its model, also a deleted one
    sources = models | {row.model for row in connection.execute(sa.text("SELECT model FROM trainings")) if row.model}
    answers = connection.execute(sa.text("SELECT answer, digest FROM answers WHERE kind = 'calibration'")).all()
    for answer, document in answers:
        for source in sources:
            for interpolate in (False, True):
                made = "m_" + hashlib.sha256(f"{source}:{document}:{interpolate}".encode()).hexdigest()[:24]
                if made in models:
                    op.execute(sa.update(MODELS).where(MODELS.c.id == made).values(calibration=answer))


def downgrade() -> None:
    op.drop_column("answers", "population_name")
    op.drop_column("models", "calibration")
