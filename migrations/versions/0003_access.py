"""Tokens get a scope, a repository and a time of last use; repositories can be deleted and brought back.

Revision ID: 0003_access
"""

from alembic import op

revision = "0003_access"
down_revision = "0002"
branch_labels = None
depends_on = None

UP = """
-- scope: the greatest right that the token gives, whatever its user may do. Tokens that are there keep all.
ALTER TABLE hub.token
    ADD COLUMN scope text NOT NULL DEFAULT 'admin' CHECK (scope IN ('read', 'write', 'admin')),
    ADD COLUMN repository_id uuid REFERENCES hub.repository ON DELETE CASCADE,
    ADD COLUMN used_at timestamptz;

-- A deleted repository keeps all it has, and gives its name free.
ALTER TABLE hub.repository ADD COLUMN deleted_at timestamptz;
CREATE UNIQUE INDEX repository_path ON hub.repository (owner_id, slug) WHERE deleted_at IS NULL;
ALTER TABLE hub.repository DROP CONSTRAINT repository_owner_id_slug_key;
"""

DOWN = """
ALTER TABLE hub.repository ADD CONSTRAINT repository_owner_id_slug_key UNIQUE (owner_id, slug);
DROP INDEX hub.repository_path;
ALTER TABLE hub.repository DROP COLUMN deleted_at;
ALTER TABLE hub.token DROP COLUMN scope, DROP COLUMN repository_id, DROP COLUMN used_at;
"""


def upgrade() -> None:
    """Add the columns; both tables are small, and locked for a moment."""
    op.execute(UP)


def downgrade() -> None:
    """Drop the columns. Fails while a deleted repository and another one have the same name."""
    op.execute(DOWN)
