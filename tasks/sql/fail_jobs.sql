-- T3, T4, T8: running to pending, failed or cancelled (superseded), by the holders of the tokens; any number.
-- What is decided from the row's own data cannot change under one token. The heir can: when it appears after
-- the snapshot, or two of these jobs have one key, the unique index refuses this statement. The caller, who has made
-- a savepoint, then repeats it for one job at a time. Returns those whose tokens were current.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), decided AS MATERIALIZED (
    SELECT
        j.job_id, j.claim_token, j.claimed_by, j.claimed_at, g.code, g.detail, heir.job_id AS heir_id,
        CASE
            WHEN NOT g.retryable OR j.attempt_count >= j.attempts_max THEN 'failed'
            WHEN heir.job_id IS NOT NULL THEN 'cancelled'
            ELSE 'pending'
        END AS status,
        COALESCE(g.delays[LEAST(j.attempt_count, cardinality(g.delays))], 0)
            * (1 + g.spread * (2 * random() - 1)) AS delay
    FROM json_to_recordset(%(failures)s::json) AS g (
            job_id uuid, token uuid, code text, detail text, retryable bool, delays float8[], spread float8)
        JOIN tasks.job AS j ON j.job_id = g.job_id AND j.claim_token = g.token
        LEFT JOIN LATERAL tasks.heirs(j.job_id, j.task, j.dedup_key) AS heir ON true
    WHERE j.status = 'running'
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
        last_error_code = d.code, last_error = d.detail, last_error_at = clock.now,
        claim_token = NULL, claimed_by = NULL, claimed_at = NULL, heartbeat_at = NULL, lease_expires_at = NULL
    FROM decided AS d, clock
    WHERE j.job_id = d.job_id AND j.claim_token = d.claim_token AND j.status = 'running'
    RETURNING
        j.status, j.job_id, j.limit_key, j.queue, j.available_at, j.claim_count,
        d.claim_token, d.claimed_by, d.claimed_at, d.code, d.detail
), ended AS (
    INSERT INTO tasks.ended_attempt (
        claim_token, job_id, number, worker, claimed_at, ended_at, result, error_code, error)
    SELECT
        f.claim_token, f.job_id, f.claim_count, f.claimed_by, f.claimed_at, GREATEST(clock.now, f.claimed_at),
        'FAILED', f.code, f.detail
    FROM failed AS f, clock
)
SELECT
    f.claim_token, f.status, f.job_id, f.limit_key,
    CASE WHEN f.status = 'pending' AND f.available_at <= clock.now
        THEN pg_notify('tasks', f.queue)::text END AS notified
FROM failed AS f, clock
