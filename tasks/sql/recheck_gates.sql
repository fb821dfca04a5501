-- After a claim: the ready jobs at the head that it passed over because a gate has shut meanwhile are to be checked
-- again, out of the way of the next claim. The head only, of those that it could have taken: those further down were
-- not passed over. Only the shut ones are locked, so that nobody's claim misses an open one.
WITH head AS MATERIALIZED (
    SELECT j.job_id, j.scope, j.after_tasks, j.parent_count, j.on_parent_failure, j.limit_key, j.limit_max
    FROM tasks.job AS j
    WHERE j.status = 'pending' AND j.lane = 'ready' AND j.gated
      AND j.task = ANY (%(tasks)s::text[])
      AND j.queue = ANY (%(queues)s::text[])
      AND NOT EXISTS (SELECT FROM tasks.queue AS q WHERE q.queue = j.queue)
    ORDER BY j.priority DESC, j.created_at, j.seq
    LIMIT %(limit)s::bigint
), shut AS MATERIALIZED (
    SELECT j.job_id
    FROM tasks.job AS j JOIN head AS h USING (job_id)
    WHERE (h.after_tasks <> '{}' AND (
            SELECT b.job_id FROM tasks.blockers(h.job_id, h.scope, h.after_tasks) AS b
            ORDER BY b.task LIMIT 1) IS NOT NULL)
       OR (h.parent_count > 0 AND (
            SELECT p.parent_id FROM tasks.unmet_parents(h.job_id, h.on_parent_failure) AS p
            ORDER BY p.position LIMIT 1) IS NOT NULL)
       OR (h.limit_key = ANY (%(keys)s::text[])
           AND (SELECT count(*) FROM tasks.running_of(h.limit_key)) >= h.limit_max)
    FOR UPDATE OF j SKIP LOCKED
)
UPDATE tasks.job AS j
SET lane = 'unchecked'
FROM shut
-- Compared as a row, lest the planner walk the whole partial index of such rows instead of looking the id up.
WHERE j.job_id = shut.job_id AND (j.status, j.lane) IS NOT DISTINCT FROM ('pending', 'ready')
RETURNING j.job_id
