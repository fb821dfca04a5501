-- These jobs have come to an end: what was parked on them is to be looked at again. A later statement of the
-- transaction that ended them: whoever parked a job on one of them has committed by then, and is seen. Rows that
-- somebody has locked are skipped: an open join, which takes its job out of the lane itself, or an operator.
WITH parked AS MATERIALIZED (
    SELECT j.job_id
    FROM tasks.job AS j
    WHERE j.parked_on = ANY (%(ended)s::uuid[])
    FOR UPDATE OF j SKIP LOCKED
), freed AS (
    UPDATE tasks.job AS j
    SET lane = 'unchecked', parked_on = NULL
    FROM parked
    WHERE j.job_id = parked.job_id AND j.status = 'pending'
    RETURNING j.queue
)
SELECT pg_notify('tasks', queue)::text AS rung FROM (SELECT DISTINCT queue FROM freed) AS queues
