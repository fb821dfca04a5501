"""A job that ends frees what is parked on it in bounded bites, in the order of claims.

`tasks.unparking` names the jobs that have ended while more was parked on them than their end has freed; claims free
the rest. A row for each time: nothing is updated, so that whoever takes a row away takes only what it has read.

Lock: SHARE on tasks.job (no writes) while the index of its parked jobs is built, about a second for a million jobs.
"""

from __future__ import annotations

from alembic import op

revision = "0008_unparking"
down_revision = "0003_tasks"
branch_labels = None
depends_on = None

UP = """
CREATE TABLE tasks.unparking (
    seq     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id  uuid NOT NULL
);
DROP INDEX tasks.job_parked;
CREATE INDEX job_parked ON tasks.job (parked_on, priority DESC, created_at, seq) WHERE parked_on IS NOT NULL
"""

DOWN = """
DROP TABLE tasks.unparking;
DROP INDEX tasks.job_parked;
CREATE INDEX job_parked ON tasks.job (parked_on) WHERE parked_on IS NOT NULL
"""


def upgrade() -> None:
    """Make the table, and bring the index into the order of claims."""
    op.execute(UP)


def downgrade() -> None:
    """Take both back; what is still parked on an ended job is freed by the sweep."""
    op.execute(DOWN)
