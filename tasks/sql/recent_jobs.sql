-- Jobs that run, that ended lately, or that somebody watches; for those who look on.
WITH found AS (
    (SELECT job_id FROM tasks.job WHERE lease_expires_at IS NOT NULL LIMIT %(limit)s::bigint)
    UNION
    (SELECT job_id FROM tasks.job WHERE finished_at IS NOT NULL AND finished_at > %(since)s::timestamptz
     ORDER BY finished_at DESC LIMIT %(limit)s::bigint)
    UNION
    SELECT unnest(%(watched)s::uuid[])
)
SELECT
    job_id, seq, task, queue, scope, payload, priority, status, after_tasks, created_at, available_at,
    lease_seconds, attempts_max, attempt_count, claim_count, postpones_max, postpone_count, claim_token,
    claimed_by, claimed_at, heartbeat_at, lease_expires_at, started_at, finished_at, result, last_error_code,
    last_error, last_error_at, dedup_key, dedup_mode, coalesced, coalesced_at, cancel_reason, superseded_by,
    progress, expires_at, limit_key, limit_max, parent_count, on_parent_failure, pass_results, lane, parked_on
FROM found JOIN tasks.job USING (job_id)
