-- T10: running to quarantined, by the holder of the token.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), quarantined AS (
    UPDATE tasks.job AS j
    SET status = 'quarantined',
        finished_at = GREATEST(clock.now, j.started_at),
        last_error_code = %(code)s::text, last_error = %(detail)s::text, last_error_at = clock.now,
        claim_token = NULL, claimed_by = NULL, claimed_at = NULL, heartbeat_at = NULL, lease_expires_at = NULL
    FROM clock
    WHERE j.job_id = %(job_id)s::uuid AND j.claim_token = %(token)s::uuid AND j.status = 'running'
    RETURNING j.job_id, j.limit_key, j.finished_at
), closed AS (
    UPDATE tasks.attempt AS a
    SET result = 'QUARANTINED', ended_at = q.finished_at,
        error_code = %(code)s::text, error = %(detail)s::text
    FROM quarantined AS q
    WHERE a.job_id = q.job_id AND a.claim_token = %(token)s::uuid AND a.result IS NULL
)
SELECT job_id, limit_key FROM quarantined
