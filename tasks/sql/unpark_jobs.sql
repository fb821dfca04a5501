-- These jobs have come to an end: what was parked on them is to be looked at again, the first in order; when there is
-- more, claims go on (unpark_rest). A later statement of the transaction that ended them: whoever parked a job on one
-- of them has committed by then, and is seen. Rows that somebody has locked are skipped: an open join, which takes its
-- job out of the lane itself, or an operator.
WITH next AS MATERIALIZED (
    SELECT w.job_id, w.priority, w.created_at, w.seq
    FROM unnest(%(ended)s::uuid[]) AS e (job_id)
    CROSS JOIN LATERAL (
        SELECT j.job_id, j.priority, j.created_at, j.seq
        FROM tasks.job AS j
        WHERE j.parked_on = e.job_id
        ORDER BY j.priority DESC, j.created_at, j.seq
        LIMIT %(limit)s::bigint + 1) AS w
), parked AS MATERIALIZED (
    SELECT j.job_id
    FROM tasks.job AS j JOIN next AS n USING (job_id)
    ORDER BY n.priority DESC, n.created_at, n.seq
    LIMIT %(limit)s::bigint
    FOR UPDATE OF j SKIP LOCKED
), freed AS (
    UPDATE tasks.job AS j
    SET lane = 'unchecked', parked_on = NULL
    FROM parked
    -- Compared as a row: see recheck_gates.
    WHERE j.job_id = parked.job_id AND (j.status, j.lane) IS NOT DISTINCT FROM ('pending', 'parked')
    RETURNING j.queue
), noted AS (
    INSERT INTO tasks.unparking (job_id)
    SELECT e.job_id
    FROM unnest(%(ended)s::uuid[]) AS e (job_id)
    WHERE (SELECT count(*) FROM next) > %(limit)s::bigint
      AND EXISTS (SELECT FROM tasks.job AS j WHERE j.parked_on = e.job_id)
)
SELECT pg_notify('tasks', queue)::text AS rung FROM (
    SELECT queue FROM freed
    UNION
    -- The queues of the rest are not known without reading all of it: any that a worker serves may be among them.
    SELECT unnest(w.queues) FROM tasks.worker AS w WHERE (SELECT count(*) FROM next) > %(limit)s::bigint
) AS queues
