-- T9, T8 and T4 by too many postpones: running to pending, cancelled (superseded) or failed, by the holder.
-- The attempt is given back, except in the failure, which counts like any other. About the heir see fail_jobs.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), decided AS MATERIALIZED (
    SELECT
        j.job_id, j.claim_token, j.claimed_by, j.claimed_at, heir.job_id AS heir_id,
        CASE
            WHEN %(postpone)s::bool AND j.postpone_count >= j.postpones_max THEN 'failed'
            WHEN heir.job_id IS NOT NULL THEN 'cancelled'
            ELSE 'pending'
        END AS status
    FROM tasks.job AS j LEFT JOIN LATERAL tasks.heirs(j.job_id, j.task, j.dedup_key) AS heir ON true
    WHERE j.job_id = %(job_id)s::uuid AND j.claim_token = %(token)s::uuid AND j.status = 'running'
), released AS (
    UPDATE tasks.job AS j
    SET status = d.status,
        available_at = CASE WHEN d.status = 'pending'
            THEN clock.now + make_interval(secs => %(delay)s::float8) ELSE j.available_at END,
        lane = CASE WHEN d.status = 'pending' AND %(delay)s::float8 > 0 THEN 'later'
            WHEN d.status = 'pending' AND j.gated THEN 'unchecked' ELSE 'ready' END,
        finished_at = CASE WHEN d.status <> 'pending' THEN GREATEST(clock.now, j.started_at) END,
        cancel_reason = CASE WHEN d.status = 'cancelled' THEN 'superseded' END,
        superseded_by = CASE WHEN d.status = 'cancelled' THEN d.heir_id END,
        attempt_count = CASE WHEN d.status = 'failed' THEN j.attempt_count ELSE j.attempt_count - 1 END,
        postpone_count = CASE WHEN %(postpone)s::bool AND d.status <> 'failed'
            THEN j.postpone_count + 1 ELSE j.postpone_count END,
        last_error_code = CASE WHEN d.status = 'failed' THEN %(code)s::text ELSE j.last_error_code END,
        last_error = CASE WHEN d.status = 'failed' THEN %(detail)s::text ELSE j.last_error END,
        last_error_at = CASE WHEN d.status = 'failed' THEN clock.now ELSE j.last_error_at END,
        claim_token = NULL, claimed_by = NULL, claimed_at = NULL, heartbeat_at = NULL, lease_expires_at = NULL
    FROM decided AS d, clock
    WHERE j.job_id = d.job_id AND j.claim_token = d.claim_token AND j.status = 'running'
    RETURNING
        j.status, j.job_id, j.limit_key, j.queue, j.available_at, j.claim_count,
        d.claim_token, d.claimed_by, d.claimed_at
), ended AS (
    INSERT INTO tasks.ended_attempt (
        claim_token, job_id, number, worker, claimed_at, ended_at, result, error_code, error)
    SELECT
        r.claim_token, r.job_id, r.claim_count, r.claimed_by, r.claimed_at, GREATEST(clock.now, r.claimed_at),
        CASE WHEN r.status = 'failed' THEN 'FAILED' ELSE 'RELEASED' END,
        CASE WHEN r.status = 'failed' THEN %(code)s::text END,
        CASE WHEN r.status = 'failed' THEN %(detail)s::text END
    FROM released AS r, clock
)
SELECT
    r.status, r.job_id, r.limit_key,
    CASE WHEN r.status = 'pending' AND r.available_at <= clock.now
        THEN pg_notify('tasks', r.queue)::text END AS notified
FROM released AS r, clock
