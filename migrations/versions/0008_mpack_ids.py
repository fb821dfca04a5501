"""The ids that a pack holds until it is indexed are stored as they are: Postgres tried in vain to compress them.

Revision ID: 0008_mpack_ids
"""

from alembic import op

revision = "0008_mpack_ids"
down_revision = "0007_facts"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Concerns the rows to come; those there stay as they are."""
    op.execute("ALTER TABLE hub.mpack ALTER COLUMN object_ids SET STORAGE EXTERNAL")


def downgrade() -> None:
    """Compress them again."""
    op.execute("ALTER TABLE hub.mpack ALTER COLUMN object_ids SET STORAGE EXTENDED")
