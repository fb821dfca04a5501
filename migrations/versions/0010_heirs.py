"""A child waits for the job that does its parent's work: docs/adr/0022.

A parent that was superseded counts as its heir does, to the end of the line. Retention, which asks whether somebody
still needs an heir, finds the way back by an index.

Lock: SHARE on tasks.job (no writes) while the index of superseded jobs is built, about a second for a million jobs.
"""

from __future__ import annotations

from alembic import op

revision = "0010_heirs"
down_revision = "0009_attempts"
branch_labels = None
depends_on = None

# STRICT: nothing is looked up for a parent that was not superseded. An heir with parents of its own is not followed: it
# might wait for the child. The line ends, for a job was pending when it became the heir of another.
UP = """
CREATE INDEX job_superseded ON tasks.job (superseded_by) WHERE superseded_by IS NOT NULL;

CREATE FUNCTION tasks.last_heir(first_heir uuid, waiting_id uuid) RETURNS uuid LANGUAGE sql STABLE STRICT AS $$
    WITH RECURSIVE line AS (
        SELECT h.job_id, h.superseded_by, h.parent_count, 0 AS step FROM tasks.job AS h WHERE h.job_id = first_heir
        UNION ALL
        SELECT h.job_id, h.superseded_by, h.parent_count, l.step + 1
        FROM line AS l JOIN tasks.job AS h ON h.job_id = l.superseded_by
    )
    SELECT l.job_id FROM line AS l
    WHERE l.superseded_by IS NULL AND (l.parent_count = 0 OR l.job_id = waiting_id)
$$;
COMMENT ON FUNCTION tasks.last_heir IS
    'The job that does the work of a superseded one, last in the line; NULL when it is gone or has parents itself';

DROP FUNCTION tasks.unmet_parents;
CREATE FUNCTION tasks.unmet_parents(waiting_id uuid, policy text)
RETURNS TABLE (
    parent_id uuid, task text, status text, since timestamptz, "position" integer, in_place_of uuid)
LANGUAGE sql STABLE AS $$
    SELECT
        COALESCE(h.job_id, d.parent_id), COALESCE(h.task, p.task), COALESCE(h.status, p.status),
        CASE WHEN h.job_id IS NULL THEN COALESCE(p.finished_at, p.claimed_at, p.created_at)
            ELSE COALESCE(h.finished_at, h.claimed_at, h.created_at) END,
        d.position,
        CASE WHEN h.job_id IS NOT NULL THEN d.parent_id END
    FROM tasks.dependency AS d
    LEFT JOIN tasks.job AS p ON p.job_id = d.parent_id
    LEFT JOIN tasks.job AS h ON h.job_id = tasks.last_heir(p.superseded_by, waiting_id)
    WHERE d.child_id = waiting_id
      AND CASE
            WHEN p.job_id IS NULL THEN policy <> 'run'
            WHEN p.status = 'succeeded' OR h.status = 'succeeded' OR h.job_id = waiting_id THEN false
            WHEN h.job_id IS NULL THEN policy <> 'run' OR p.finished_at IS NULL
            ELSE policy <> 'run' OR h.finished_at IS NULL
          END
$$;
COMMENT ON FUNCTION tasks.unmet_parents IS
    'The parents that a job waits for, or the heirs in place of them; status NULL: there is no such job (any more)'
"""

DOWN = """
DROP FUNCTION tasks.unmet_parents;
CREATE FUNCTION tasks.unmet_parents(waiting_id uuid, policy text)
RETURNS TABLE (parent_id uuid, task text, status text, since timestamptz, "position" integer)
LANGUAGE sql STABLE AS $$
    SELECT d.parent_id, p.task, p.status, COALESCE(p.finished_at, p.claimed_at, p.created_at), d.position
    FROM tasks.dependency AS d LEFT JOIN tasks.job AS p ON p.job_id = d.parent_id
    WHERE d.child_id = waiting_id
      AND CASE
            WHEN p.job_id IS NULL THEN policy <> 'run'
            WHEN p.status = 'succeeded' THEN false
            ELSE policy <> 'run' OR p.finished_at IS NULL
          END
$$;
COMMENT ON FUNCTION tasks.unmet_parents IS
    'The parents that a job waits for; status NULL: there is no such job (any more)';
DROP FUNCTION tasks.last_heir;
DROP INDEX tasks.job_superseded
"""


def upgrade() -> None:
    """Follow heirs."""
    op.execute(UP)


def downgrade() -> None:
    """A superseded parent counts as cancelled again."""
    op.execute(DOWN)
