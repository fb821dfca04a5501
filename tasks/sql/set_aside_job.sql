-- T10 by a person: pending or running to quarantined; the token of a running one dies at once.
-- The job is locked: see lock_job. What a worker reported last stays: the person's reason is an operation.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), set_aside AS (
    UPDATE tasks.job AS j
    SET status = 'quarantined', lane = 'ready', parked_on = NULL,
        finished_at = GREATEST(clock.now, j.started_at),
        claim_token = NULL, claimed_by = NULL, claimed_at = NULL, heartbeat_at = NULL, lease_expires_at = NULL
    FROM clock
    WHERE j.job_id = %(job_id)s::uuid AND (j.status = 'pending' OR j.status = 'running')
    RETURNING j.job_id, j.limit_key, j.finished_at
), closed AS (
    UPDATE tasks.attempt AS a
    SET result = 'QUARANTINED', ended_at = GREATEST(s.finished_at, a.claimed_at),
        error_code = 'SET_ASIDE', error = %(reason)s::text
    FROM set_aside AS s
    WHERE a.job_id = s.job_id AND a.result IS NULL
), noted AS (
    INSERT INTO tasks.operation (job_id, at, action, reason)
    SELECT s.job_id, clock.now, 'set_aside', %(reason)s::text FROM set_aside AS s, clock
)
SELECT job_id, limit_key FROM set_aside
