-- T6, T7: pending or running to cancelled, by a person; the token of a running one dies at once.
-- The job is locked: see lock_job.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), cancelled AS (
    UPDATE tasks.job AS j
    SET status = 'cancelled', cancel_reason = %(reason)s::text, lane = 'ready', parked_on = NULL,
        finished_at = GREATEST(clock.now, j.started_at),
        claim_token = NULL, claimed_by = NULL, claimed_at = NULL, heartbeat_at = NULL, lease_expires_at = NULL
    FROM tasks.job AS was, clock
    WHERE was.job_id = %(job_id)s::uuid
      AND j.job_id = was.job_id AND (j.status = 'pending' OR j.status = 'running')
    RETURNING j.job_id, j.claim_count, j.limit_key, j.finished_at, was.claim_token, was.claimed_by, was.claimed_at
), ended AS (
    INSERT INTO tasks.ended_attempt (claim_token, job_id, number, worker, claimed_at, ended_at, result)
    SELECT claim_token, job_id, claim_count, claimed_by, claimed_at, finished_at, 'CANCELLED'
    FROM cancelled WHERE claim_token IS NOT NULL
), noted AS (
    INSERT INTO tasks.operation (job_id, at, action, reason)
    SELECT c.job_id, clock.now, 'cancel', %(reason)s::text FROM cancelled AS c, clock
)
SELECT job_id, limit_key FROM cancelled
