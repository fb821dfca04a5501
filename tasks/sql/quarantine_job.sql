-- T10: running to quarantined, by the holder of the token.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), quarantined AS (
    UPDATE tasks.job AS j
    SET status = 'quarantined',
        finished_at = GREATEST(clock.now, j.started_at),
        last_error_code = %(code)s::text, last_error = %(detail)s::text, last_error_at = clock.now,
        claim_token = NULL, claimed_by = NULL, claimed_at = NULL, heartbeat_at = NULL, lease_expires_at = NULL
    FROM tasks.job AS was, clock
    WHERE was.job_id = %(job_id)s::uuid AND was.claim_token = %(token)s::uuid
      AND j.job_id = was.job_id AND j.claim_token = was.claim_token AND j.status = 'running'
    RETURNING j.job_id, j.claim_count, j.limit_key, j.finished_at, was.claim_token, was.claimed_by, was.claimed_at
), ended AS (
    INSERT INTO tasks.ended_attempt (
        claim_token, job_id, number, worker, claimed_at, ended_at, result, error_code, error)
    SELECT
        claim_token, job_id, claim_count, claimed_by, claimed_at, finished_at, 'QUARANTINED', %(code)s::text,
        %(detail)s::text
    FROM quarantined
)
SELECT job_id, limit_key FROM quarantined
