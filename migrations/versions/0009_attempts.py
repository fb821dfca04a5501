"""An attempt is written once, when it ends; while it is open, its job's row is its record.

`tasks.ended_attempt` keeps those that have ended. The view `tasks.attempt` is all of them, one row for each claim, as
before: docs/adr/0020. Stop the workers of the version before first, it writes to the table that was.

Lock: ACCESS EXCLUSIVE on tasks.attempt while its rows are looked at, less than a second for a million.
"""

from __future__ import annotations

from alembic import op

revision = "0009_attempts"
down_revision = "0008_unparking"
branch_labels = None
depends_on = None

UP = """
DROP INDEX tasks.attempt_one_open;
DELETE FROM tasks.attempt WHERE result IS NULL;
ALTER TABLE tasks.attempt
    DROP CONSTRAINT attempt_ended_iff_result,
    DROP CONSTRAINT attempt_result_known,
    DROP CONSTRAINT attempt_ended_after_claimed,
    DROP CONSTRAINT attempt_error_iff_failed,
    ALTER COLUMN ended_at SET NOT NULL,
    ALTER COLUMN result SET NOT NULL,
    ADD CONSTRAINT attempt_result_known CHECK (
        result IN ('SUCCEEDED', 'FAILED', 'ABANDONED', 'RELEASED', 'CANCELLED', 'QUARANTINED')),
    ADD CONSTRAINT attempt_ended_after_claimed CHECK (ended_at >= claimed_at),
    ADD CONSTRAINT attempt_error_iff_failed CHECK ((error_code IS NOT NULL) = (result IN ('FAILED', 'QUARANTINED'))),
    RESET (fillfactor);
ALTER TABLE tasks.attempt RENAME TO ended_attempt;
CREATE VIEW tasks.attempt AS
    SELECT claim_token, job_id, number, worker, claimed_at, ended_at, result, error_code, error
    FROM tasks.ended_attempt
    UNION ALL
    SELECT claim_token, job_id, claim_count, claimed_by, claimed_at, NULL, NULL, NULL, NULL
    FROM tasks.job
    WHERE status = 'running';
COMMENT ON VIEW tasks.attempt IS
    'One row for each claim of each job, for ever: those that have ended, and the open one of each running job'
"""

DOWN = """
DROP VIEW tasks.attempt;
ALTER TABLE tasks.ended_attempt RENAME TO attempt;
ALTER TABLE tasks.attempt
    DROP CONSTRAINT attempt_result_known,
    DROP CONSTRAINT attempt_ended_after_claimed,
    DROP CONSTRAINT attempt_error_iff_failed,
    ALTER COLUMN ended_at DROP NOT NULL,
    ALTER COLUMN result DROP NOT NULL,
    ADD CONSTRAINT attempt_result_known CHECK (result IS NULL OR result IN (
        'SUCCEEDED', 'FAILED', 'ABANDONED', 'RELEASED', 'CANCELLED', 'QUARANTINED')),
    ADD CONSTRAINT attempt_ended_iff_result CHECK ((ended_at IS NOT NULL) = (result IS NOT NULL)),
    ADD CONSTRAINT attempt_ended_after_claimed CHECK (ended_at IS NULL OR ended_at >= claimed_at),
    ADD CONSTRAINT attempt_error_iff_failed CHECK (
        (error_code IS NOT NULL) = (result IS NOT NULL AND result IN ('FAILED', 'QUARANTINED'))),
    SET (fillfactor = 90);
INSERT INTO tasks.attempt (claim_token, job_id, number, worker, claimed_at)
    SELECT claim_token, job_id, claim_count, claimed_by, claimed_at FROM tasks.job WHERE status = 'running';
CREATE UNIQUE INDEX attempt_one_open ON tasks.attempt (job_id) WHERE result IS NULL
"""


def upgrade() -> None:
    """Keep only what has ended; show the open ones from their jobs."""
    op.execute(UP)


def downgrade() -> None:
    """Write the open ones beside the others again."""
    op.execute(DOWN)
