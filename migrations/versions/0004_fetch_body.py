"""The ready-made body of a Muse fetch, beside the pack that is built for clones.

Revision ID: 0004_fetch_body
"""

from alembic import op

revision = "0004_fetch_body"
down_revision = "0003_access"
branch_labels = None
depends_on = None

UP = """
-- body_id: the body in the cache store, by its digest; without one it would have had at least body_size bytes.
ALTER TABLE hub.fetch_mpack_cache
    ADD COLUMN body_id bytea CHECK (octet_length(body_id) = 32),
    ADD COLUMN body_size bigint CHECK (body_size > 0),
    ADD CHECK (body_id IS NULL OR body_size IS NOT NULL);
"""

DOWN = """
ALTER TABLE hub.fetch_mpack_cache DROP COLUMN body_id, DROP COLUMN body_size;
"""


def upgrade() -> None:
    """Add the columns."""
    op.execute(UP)


def downgrade() -> None:
    """Drop them; what lies in the cache store is garbage then."""
    op.execute(DOWN)
