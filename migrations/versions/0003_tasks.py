"""Attempts are found by their job: one index less for each claim, and none in random order.

The unique index over the claim tokens took an entry for every claim and every end, on a random page each. A token
is looked up together with its job, whose few attempts the key finds.

Lock: ACCESS EXCLUSIVE on tasks.attempt while its new key is built, about a second for a million attempts.
"""

from __future__ import annotations

from alembic import op

revision = "0003_tasks"
down_revision = "0001_tasks"
branch_labels = None
depends_on = None

UP = """
ALTER TABLE tasks.attempt
    DROP CONSTRAINT attempt_pkey,
    DROP CONSTRAINT attempt_number_once,
    ADD CONSTRAINT attempt_number_once PRIMARY KEY (job_id, number)
"""

DOWN = """
ALTER TABLE tasks.attempt
    DROP CONSTRAINT attempt_number_once,
    ADD CONSTRAINT attempt_number_once UNIQUE (job_id, number),
    ADD CONSTRAINT attempt_pkey PRIMARY KEY (claim_token)
"""


def upgrade() -> None:
    """Make (job_id, number) the key."""
    op.execute(UP)


def downgrade() -> None:
    """Make the token the key again."""
    op.execute(DOWN)
