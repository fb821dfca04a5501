-- Heartbeat: running stays running. Returns the tokens that are still current.
-- A row that somebody has locked (its own task, about to finish or saving its progress) is skipped, not
-- waited for: one slow transaction must not let every other lease of this worker run out. The snapshot still
-- says whose it is, so it counts as held; the sweep skips locked rows as well.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), held AS MATERIALIZED (
    SELECT j.job_id, j.claim_token
    FROM unnest(%(job_ids)s::uuid[], %(tokens)s::uuid[]) AS g (job_id, claim_token)
    JOIN tasks.job AS j USING (job_id, claim_token)
    WHERE j.status = 'running'
), locked AS MATERIALIZED (
    SELECT j.job_id, j.claim_token
    FROM tasks.job AS j JOIN held USING (job_id, claim_token)
    WHERE j.status = 'running'
    FOR NO KEY UPDATE OF j SKIP LOCKED
), extended AS (
    UPDATE tasks.job AS j
    SET heartbeat_at = GREATEST(j.heartbeat_at, clock.now),
        lease_expires_at = GREATEST(
            j.lease_expires_at, clock.now + make_interval(secs => j.lease_seconds))
    FROM locked, clock
    WHERE j.job_id = locked.job_id AND j.claim_token = locked.claim_token AND j.status = 'running'
)
SELECT claim_token FROM held
