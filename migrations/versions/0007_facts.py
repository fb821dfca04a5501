"""What is worked out about the heads of branches: the last commit of each path, and the languages.

Revision ID: 0007_facts
"""

from alembic import op

revision = "0007_facts"
down_revision = "0006_doomed"
branch_labels = None
depends_on = None

UP = """
-- hub.last_commits: for each path of the commit's tree, in order, the last commit that changed it.
CREATE TABLE hub.last_commits (
    repository_id uuid NOT NULL,
    commit_id bytea NOT NULL,
    encoded bytea NOT NULL,
    PRIMARY KEY (repository_id, commit_id),
    FOREIGN KEY (repository_id, commit_id) REFERENCES hub.commit ON DELETE CASCADE
);
ALTER TABLE hub.last_commits ALTER COLUMN encoded SET STORAGE EXTERNAL;

-- Languages and sizes of the commit's tree.
CREATE TABLE hub.code_intel (
    repository_id uuid NOT NULL,
    commit_id bytea NOT NULL,
    statistics jsonb NOT NULL,
    PRIMARY KEY (repository_id, commit_id),
    FOREIGN KEY (repository_id, commit_id) REFERENCES hub.commit ON DELETE CASCADE
);
"""


def upgrade() -> None:
    """Create both tables."""
    op.execute(UP)


def downgrade() -> None:
    """Drop them; both are worked out again."""
    op.execute("DROP TABLE hub.last_commits; DROP TABLE hub.code_intel")
