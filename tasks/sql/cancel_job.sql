-- T6, T7: pending or running to cancelled, by a person; the token of a running one dies at once.
-- The job is locked: see lock_job.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), cancelled AS (
    UPDATE tasks.job AS j
    SET status = 'cancelled', cancel_reason = %(reason)s::text, lane = 'ready', parked_on = NULL,
        finished_at = GREATEST(clock.now, j.started_at),
        claim_token = NULL, claimed_by = NULL, claimed_at = NULL, heartbeat_at = NULL, lease_expires_at = NULL
    FROM clock
    WHERE j.job_id = %(job_id)s::uuid AND (j.status = 'pending' OR j.status = 'running')
    RETURNING j.job_id, j.limit_key, j.finished_at
), closed AS (
    UPDATE tasks.attempt AS a
    SET result = 'CANCELLED', ended_at = GREATEST(c.finished_at, a.claimed_at)
    FROM cancelled AS c
    WHERE a.job_id = c.job_id AND a.result IS NULL
), noted AS (
    INSERT INTO tasks.operation (job_id, at, action, reason)
    SELECT c.job_id, clock.now, 'cancel', %(reason)s::text FROM cancelled AS c, clock
)
SELECT job_id, limit_key FROM cancelled
