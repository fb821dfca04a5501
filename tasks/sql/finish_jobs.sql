-- T2: running to succeeded. Returns the places, from one, of those whose tokens were current.
-- `was` is the row before: who held it is written down in the attempt and gone from the job.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), finished AS (
    UPDATE tasks.job AS j
    SET status = 'succeeded',
        finished_at = GREATEST(clock.now, j.started_at),
        result = g.result::jsonb,
        last_error_code = NULL, last_error = NULL, last_error_at = NULL,
        claim_token = NULL, claimed_by = NULL, claimed_at = NULL, heartbeat_at = NULL, lease_expires_at = NULL
    FROM unnest(%(job_ids)s::uuid[], %(tokens)s::uuid[], %(results)s::text[]) WITH ORDINALITY
             AS g (job_id, claim_token, result, place)
         JOIN tasks.job AS was ON was.job_id = g.job_id AND was.claim_token = g.claim_token,
         clock
    WHERE j.job_id = was.job_id AND j.claim_token = g.claim_token AND j.status = 'running'
    RETURNING g.place, was.claim_token, j.job_id, j.claim_count, was.claimed_by, was.claimed_at, j.finished_at, j.limit_key
), ended AS (
    INSERT INTO tasks.ended_attempt (claim_token, job_id, number, worker, claimed_at, ended_at, result)
    SELECT claim_token, job_id, claim_count, claimed_by, claimed_at, finished_at, 'SUCCEEDED' FROM finished
)
SELECT place, limit_key FROM finished
