-- For the sweep: parked jobs that nothing holds any more, though nobody told them. That is rare: an open join had
-- locked the job when its blocker ended, and was rolled back; a superseded parent was retried while a claim looked; or
-- somebody deleted rows by hand.
WITH stray AS MATERIALIZED (
    SELECT j.job_id
    FROM tasks.job AS j LEFT JOIN tasks.job AS b ON b.job_id = j.parked_on
    WHERE j.lane = 'parked' AND j.parked_on IS NOT NULL AND j.status = 'pending'
      AND (b.job_id IS NULL OR b.finished_at IS NOT NULL)
      AND NOT EXISTS (
          SELECT FROM tasks.unmet_parents(j.job_id, j.on_parent_failure) AS p WHERE p.parent_id = j.parked_on)
    LIMIT %(limit)s::bigint
    FOR UPDATE OF j SKIP LOCKED
), freed AS (
    UPDATE tasks.job AS j
    SET lane = 'unchecked', parked_on = NULL
    FROM stray
    WHERE j.job_id = stray.job_id
    RETURNING j.queue
)
SELECT count(*) AS jobs, pg_notify('tasks', queue)::text AS rung FROM freed GROUP BY queue
