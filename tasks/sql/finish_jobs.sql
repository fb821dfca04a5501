-- T2: running to succeeded. Returns the tokens that were current.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), finished AS (
    UPDATE tasks.job AS j
    SET status = 'succeeded',
        finished_at = GREATEST(clock.now, j.started_at),
        result = g.result::jsonb,
        last_error_code = NULL, last_error = NULL, last_error_at = NULL,
        claim_token = NULL, claimed_by = NULL, claimed_at = NULL, heartbeat_at = NULL, lease_expires_at = NULL
    FROM unnest(%(job_ids)s::uuid[], %(tokens)s::uuid[], %(results)s::text[])
             AS g (job_id, claim_token, result),
         clock
    WHERE j.job_id = g.job_id AND j.claim_token = g.claim_token AND j.status = 'running'
    RETURNING g.claim_token, j.job_id, j.limit_key, j.finished_at
), closed AS (
    UPDATE tasks.attempt AS a
    SET result = 'SUCCEEDED', ended_at = f.finished_at
    FROM finished AS f
    WHERE a.job_id = f.job_id AND a.claim_token = f.claim_token AND a.result IS NULL
)
SELECT claim_token, job_id, limit_key FROM finished
