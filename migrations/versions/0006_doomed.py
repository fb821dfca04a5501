"""Bytes that gc is about to delete, or has deleted.

Revision ID: 0006_doomed
"""

from alembic import op

revision = "0006_doomed"
down_revision = "0005_audit"
branch_labels = None
depends_on = None

UP = """
-- Stored bytes that no row names: gc deletes them some time after doomed_at. A push that brings the same pack, or that
-- has found its bytes in the archive, looks here under its repository's lock, and stores them again.
-- Outlives the bytes (deleted_at) for longer than any push lasts.
CREATE TABLE hub.doomed (
    store text NOT NULL CHECK (store IN ('archive', 'cache')),
    key text COLLATE "C" NOT NULL,
    doomed_at timestamptz NOT NULL DEFAULT now(),
    deleted_at timestamptz,
    PRIMARY KEY (store, key)
);
CREATE INDEX doomed_waiting ON hub.doomed (doomed_at) WHERE deleted_at IS NULL;
CREATE INDEX mpack_staged ON hub.mpack (created_at) WHERE state = 'staged';
"""


def upgrade() -> None:
    """Create the table, and the index of staged packs."""
    op.execute(UP)


def downgrade() -> None:
    """Drop them; bytes that wait for their deletion are found again by the next gc."""
    op.execute("DROP INDEX hub.mpack_staged; DROP TABLE hub.doomed")
