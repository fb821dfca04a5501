-- T5a, T5b, T8: running to pending, failed or cancelled (superseded), when the lease is over.
-- `expired` locks the rows; a locked one is skipped, so any number of sweeps may run. Under the lock a row may
-- be newer than the snapshot: swept, put back and claimed again. That newer attempt is not the one whose lease was
-- over, so the update matches the token that was read, by the snapshot, in `judged`.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), expired AS MATERIALIZED (
    SELECT j.job_id
    FROM tasks.job AS j
    WHERE j.status = 'running'
      AND j.lease_expires_at <= (SELECT now FROM clock)
      AND (%(only)s::uuid IS NULL OR j.job_id = %(only)s::uuid)
    ORDER BY j.lease_expires_at
    LIMIT %(limit)s::bigint
    FOR UPDATE OF j SKIP LOCKED
), judged AS MATERIALIZED (
    -- Two expired jobs of one page may have one key: the newest of them goes back, it supersedes the others.
    SELECT
        j.job_id, j.claim_token, j.claimed_by, j.claimed_at, j.attempt_count < j.attempts_max AS budget_left,
        COALESCE(heir.job_id, first_value(j.job_id) OVER (
            PARTITION BY j.task, j.dedup_key, j.attempt_count < j.attempts_max ORDER BY j.seq DESC)) AS heir_id,
        j.dedup_key IS NOT NULL AS keyed
    FROM expired
    JOIN tasks.job AS j USING (job_id)
    LEFT JOIN LATERAL tasks.heirs(j.job_id, j.task, j.dedup_key) AS heir ON true
), decided AS MATERIALIZED (
    SELECT
        job_id, claim_token, claimed_by, claimed_at, heir_id,
        CASE
            WHEN NOT budget_left THEN 'failed'
            WHEN keyed AND heir_id <> job_id THEN 'cancelled'
            ELSE 'pending'
        END AS status
    FROM judged
), swept AS (
    UPDATE tasks.job AS j
    SET status = d.status,
        available_at = CASE WHEN d.status = 'pending' THEN clock.now ELSE j.available_at END,
        lane = CASE WHEN d.status = 'pending' AND j.gated THEN 'unchecked' ELSE 'ready' END,
        finished_at = CASE WHEN d.status <> 'pending' THEN GREATEST(clock.now, j.started_at) END,
        cancel_reason = CASE WHEN d.status = 'cancelled' THEN 'superseded' END,
        superseded_by = CASE WHEN d.status = 'cancelled' THEN d.heir_id END,
        claim_token = NULL, claimed_by = NULL, claimed_at = NULL, heartbeat_at = NULL, lease_expires_at = NULL
    FROM decided AS d, clock
    WHERE j.job_id = d.job_id AND j.claim_token = d.claim_token AND j.status = 'running'
    RETURNING j.status, j.job_id, j.limit_key, j.queue, j.claim_count, d.claim_token, d.claimed_by, d.claimed_at
), ended AS (
    INSERT INTO tasks.ended_attempt (claim_token, job_id, number, worker, claimed_at, ended_at, result)
    SELECT
        s.claim_token, s.job_id, s.claim_count, s.claimed_by, s.claimed_at, GREATEST(clock.now, s.claimed_at),
        'ABANDONED'
    FROM swept AS s, clock
)
SELECT
    s.status,
    count(*) AS jobs,
    array_agg(s.job_id) AS job_ids,
    array_agg(DISTINCT s.limit_key) AS limit_keys,
    CASE WHEN s.status = 'pending' THEN pg_notify('tasks', s.queue)::text END AS notified
FROM swept AS s
GROUP BY s.status, s.queue
