-- T6: pending to cancelled (expired), one page, the longest expired first.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), expired AS MATERIALIZED (
    SELECT j.job_id
    FROM tasks.job AS j
    WHERE j.status = 'pending' AND j.expires_at <= (SELECT now FROM clock)
    ORDER BY j.expires_at
    LIMIT %(limit)s::bigint
    FOR UPDATE OF j SKIP LOCKED
)
UPDATE tasks.job AS j
SET status = 'cancelled', cancel_reason = 'expired', lane = 'ready', parked_on = NULL,
    finished_at = GREATEST(clock.now, j.started_at)
FROM expired, clock
WHERE j.job_id = expired.job_id AND j.status = 'pending'
RETURNING j.job_id, j.limit_key
