-- T11: failed, cancelled or quarantined to pending, by a person. What was spent stays spent, and the
-- budgets grow by one. An expiry that is over is lifted, or the next sweep would end the job again.
-- The job is locked: see lock_job. The unique index refuses the move when a pending job has the key.
-- Also returns the job that stood in for this one when it was superseded: its children may be parked on that one.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), was AS MATERIALIZED (
    SELECT tasks.last_heir(j.superseded_by, j.job_id) AS heir_id FROM tasks.job AS j WHERE j.job_id = %(job_id)s::uuid
), retried AS (
    UPDATE tasks.job AS j
    SET status = 'pending', available_at = clock.now,
        lane = CASE WHEN j.gated THEN 'unchecked' ELSE 'ready' END,
        attempts_max = j.attempts_max + 1,
        postpones_max = j.postpones_max + 1,
        expires_at = CASE WHEN j.expires_at > clock.now THEN j.expires_at END,
        finished_at = NULL, cancel_reason = NULL, superseded_by = NULL
    FROM clock
    WHERE j.job_id = %(job_id)s::uuid
      AND (j.status = 'failed' OR j.status = 'cancelled' OR j.status = 'quarantined')
    RETURNING j.job_id, j.queue
), noted AS (
    INSERT INTO tasks.operation (job_id, at, action, reason)
    SELECT r.job_id, clock.now, 'retry', %(reason)s::text FROM retried AS r, clock
)
SELECT r.job_id, pg_notify('tasks', r.queue)::text AS notified, was.heir_id FROM retried AS r, was
