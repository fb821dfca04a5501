-- T10 by a person: pending or running to quarantined; the token of a running one dies at once.
-- The job is locked: see lock_job. What a worker reported last stays: the person's reason is an operation.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), set_aside AS (
    UPDATE tasks.job AS j
    SET status = 'quarantined', lane = 'ready', parked_on = NULL,
        finished_at = GREATEST(clock.now, j.started_at),
        claim_token = NULL, claimed_by = NULL, claimed_at = NULL, heartbeat_at = NULL, lease_expires_at = NULL
    FROM tasks.job AS was, clock
    WHERE was.job_id = %(job_id)s::uuid
      AND j.job_id = was.job_id AND (j.status = 'pending' OR j.status = 'running')
    RETURNING j.job_id, j.claim_count, j.limit_key, j.finished_at, was.claim_token, was.claimed_by, was.claimed_at
), ended AS (
    INSERT INTO tasks.ended_attempt (
        claim_token, job_id, number, worker, claimed_at, ended_at, result, error_code, error)
    SELECT
        claim_token, job_id, claim_count, claimed_by, claimed_at, finished_at, 'QUARANTINED', 'SET_ASIDE',
        %(reason)s::text
    FROM set_aside WHERE claim_token IS NOT NULL
), noted AS (
    INSERT INTO tasks.operation (job_id, at, action, reason)
    SELECT s.job_id, clock.now, 'set_aside', %(reason)s::text FROM set_aside AS s, clock
)
SELECT job_id, limit_key FROM set_aside
