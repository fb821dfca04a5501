-- One job. Named columns: the code of the last release must survive a column of the next one.
SELECT
    job_id, seq, task, queue, scope, payload, priority, status, after_tasks, created_at, available_at,
    lease_seconds, attempts_max, attempt_count, claim_count, postpones_max, postpone_count, claim_token,
    claimed_by, claimed_at, heartbeat_at, lease_expires_at, started_at, finished_at, result, last_error_code,
    last_error, last_error_at, dedup_key, dedup_mode, coalesced, coalesced_at, cancel_reason, superseded_by,
    progress, expires_at, limit_key, limit_max, parent_count, on_parent_failure, pass_results, lane, parked_on
FROM tasks.job
WHERE job_id = %(job_id)s::uuid
