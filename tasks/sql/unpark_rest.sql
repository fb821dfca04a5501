-- Before a claim: more of what is parked on jobs that have ended, the first in order. Another claim may do the same:
-- what it has locked is left to it, and the row of tasks.unparking stays until nothing is parked there any more. A job
-- that a person has retried meanwhile holds again: its row waits for its next end.
WITH ended AS MATERIALIZED (
    SELECT u.seq, u.job_id
    FROM tasks.unparking AS u
    WHERE COALESCE((SELECT b.finished_at IS NOT NULL FROM tasks.job AS b WHERE b.job_id = u.job_id), true)
    ORDER BY u.seq
    LIMIT %(blockers)s::bigint
), next AS MATERIALIZED (
    SELECT w.job_id, w.priority, w.created_at, w.seq, e.job_id AS blocker_id
    FROM (SELECT DISTINCT job_id FROM ended) AS e
    CROSS JOIN LATERAL (
        SELECT j.job_id, j.priority, j.created_at, j.seq
        FROM tasks.job AS j
        WHERE j.parked_on = e.job_id
        ORDER BY j.priority DESC, j.created_at, j.seq
        LIMIT %(limit)s::bigint) AS w
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
), done AS (
    DELETE FROM tasks.unparking AS u
    USING ended AS e
    WHERE u.seq = e.seq
      AND (SELECT count(*) FROM next AS n WHERE n.blocker_id = e.job_id) < %(limit)s::bigint
      AND NOT EXISTS (
          SELECT FROM next AS n WHERE n.blocker_id = e.job_id AND n.job_id NOT IN (SELECT p.job_id FROM parked AS p))
), rung AS MATERIALIZED (
    SELECT pg_notify('tasks', queue) FROM (SELECT DISTINCT queue FROM freed) AS queues
)
SELECT (SELECT count(*) FROM freed) AS freed, (SELECT count(*) FROM rung) AS rung
