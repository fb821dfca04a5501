-- T6: pending to cancelled (parent), one page: children whose policy says so and one of whose parents has ended
-- otherwise than well, or is not there. Parents come from the snapshot; one that a person retries just now is late.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), orphaned AS MATERIALIZED (
    SELECT j.job_id
    FROM tasks.job AS j
    WHERE j.status = 'pending' AND j.parent_count > 0 AND j.on_parent_failure = 'cancel'
      AND EXISTS (
          SELECT FROM tasks.unmet_parents(j.job_id, j.on_parent_failure) AS p
          WHERE p.status IS NULL OR p.status NOT IN ('pending', 'running'))
    LIMIT %(limit)s::bigint
    FOR UPDATE OF j SKIP LOCKED
)
UPDATE tasks.job AS j
SET status = 'cancelled', cancel_reason = 'parent', lane = 'ready', parked_on = NULL,
    finished_at = GREATEST(clock.now, j.started_at)
FROM orphaned, clock
WHERE j.job_id = orphaned.job_id AND j.status = 'pending'
RETURNING j.job_id, j.limit_key
