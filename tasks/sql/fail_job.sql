-- T3, T4, T8: running to pending, failed or cancelled (superseded), by the holder of the token.
-- What is decided from the row's own data cannot change under one token. The heir can: when it appears after
-- the snapshot the unique index refuses this statement, and the caller repeats it in a savepoint.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), decided AS MATERIALIZED (
    SELECT
        j.job_id, j.claim_token, heir.job_id AS heir_id,
        CASE
            WHEN NOT %(retryable)s::bool OR j.attempt_count >= j.attempts_max THEN 'failed'
            WHEN heir.job_id IS NOT NULL THEN 'cancelled'
            ELSE 'pending'
        END AS status,
        COALESCE((%(delays)s::float8[])[LEAST(j.attempt_count, cardinality(%(delays)s::float8[]))], 0)
            * (1 + %(spread)s::float8 * (2 * random() - 1)) AS delay
    FROM tasks.job AS j LEFT JOIN LATERAL tasks.heirs(j.job_id, j.task, j.dedup_key) AS heir ON true
    WHERE j.job_id = %(job_id)s::uuid AND j.claim_token = %(token)s::uuid AND j.status = 'running'
), failed AS (
    UPDATE tasks.job AS j
    SET status = d.status,
        available_at = CASE WHEN d.status = 'pending'
            THEN clock.now + make_interval(secs => d.delay) ELSE j.available_at END,
        lane = CASE WHEN d.status = 'pending' AND d.delay > 0 THEN 'later'
            WHEN d.status = 'pending' AND j.gated THEN 'unchecked' ELSE 'ready' END,
        finished_at = CASE WHEN d.status <> 'pending' THEN GREATEST(clock.now, j.started_at) END,
        cancel_reason = CASE WHEN d.status = 'cancelled' THEN 'superseded' END,
        superseded_by = CASE WHEN d.status = 'cancelled' THEN d.heir_id END,
        last_error_code = %(code)s::text, last_error = %(detail)s::text, last_error_at = clock.now,
        claim_token = NULL, claimed_by = NULL, claimed_at = NULL, heartbeat_at = NULL, lease_expires_at = NULL
    FROM decided AS d, clock
    WHERE j.job_id = d.job_id AND j.claim_token = d.claim_token AND j.status = 'running'
    RETURNING j.status, j.job_id, j.limit_key, j.queue, j.available_at, d.claim_token
), closed AS (
    UPDATE tasks.attempt AS a
    SET result = 'FAILED', ended_at = GREATEST(clock.now, a.claimed_at),
        error_code = %(code)s::text, error = %(detail)s::text
    FROM failed AS f, clock
    WHERE a.job_id = f.job_id AND a.claim_token = f.claim_token AND a.result IS NULL
)
SELECT
    f.status, f.job_id, f.limit_key,
    CASE WHEN f.status = 'pending' AND f.available_at <= clock.now
        THEN pg_notify('tasks', f.queue)::text END AS notified
FROM failed AS f, clock
