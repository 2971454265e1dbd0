"""The first schema: the tables as they are declared.

`tests/unit/shared/store/test_first_schema.py` holds them to the statements that this migration issues. Once a version
was published, a change of the tables is a migration of its own, and this one issues the statements that are kept there.
"""

from alembic import op

from label_dp.store.migrations import create, drop
from labels_party.storage.tables import APPEND_ONLY, metadata

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    create(op.get_bind(), metadata, APPEND_ONLY)


def downgrade() -> None:
    """Drop the tables."""
    drop(op.get_bind(), metadata, APPEND_ONLY)
