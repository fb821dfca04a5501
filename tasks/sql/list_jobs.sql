-- The newest jobs that match every filter given. The ids are ordered by time; no index is needed but theirs.
SELECT
    job_id, seq, task, queue, scope, payload, priority, status, after_tasks, created_at, available_at,
    lease_seconds, attempts_max, attempt_count, claim_count, postpones_max, postpone_count, claim_token,
    claimed_by, claimed_at, heartbeat_at, lease_expires_at, started_at, finished_at, result, last_error_code,
    last_error, last_error_at, dedup_key, dedup_mode, coalesced, coalesced_at, cancel_reason, superseded_by,
    progress, expires_at, limit_key, limit_max, parent_count, on_parent_failure, pass_results, lane, parked_on
FROM tasks.job
WHERE (%(status)s::text IS NULL OR status = %(status)s::text)
  -- The same once more, for the partial index of unfinished jobs.
  AND (%(status)s::text IS NULL OR %(status)s::text NOT IN ('pending', 'running') OR finished_at IS NULL)
  AND (%(task)s::text IS NULL OR task = %(task)s::text)
  AND (%(scope)s::text IS NULL OR scope = %(scope)s::text)
  AND (%(queue)s::text IS NULL OR queue = %(queue)s::text)
ORDER BY job_id DESC
LIMIT %(limit)s::bigint
