-- A place of these limits has come free: as many parked jobs of a key as it has places left are to be looked at
-- again, in order. A later statement than the one that took the locks. The bell also rings for jobs of the key
-- that were not parked yet.
WITH waiting AS MATERIALIZED (
    SELECT w.job_id, w.queue, w.lane
    FROM unnest(%(keys)s::text[]) AS k (limit_key)
    CROSS JOIN LATERAL (SELECT count(*) AS jobs FROM tasks.running_of(k.limit_key)) AS running
    CROSS JOIN LATERAL (
        (SELECT j.job_id, j.queue, j.lane
         FROM tasks.job AS j
         WHERE j.status = 'pending' AND j.limit_key = k.limit_key AND j.lane = 'parked' AND j.parked_on IS NULL
         ORDER BY j.priority DESC, j.created_at, j.seq
         LIMIT (SELECT GREATEST(max(m.limit_max) - running.jobs, 0) FROM (
            SELECT x.limit_max FROM tasks.job AS x
            WHERE x.status = 'pending' AND x.limit_key = k.limit_key AND x.lane = 'parked' LIMIT 100) AS m))
        UNION ALL
        (SELECT j.job_id, j.queue, j.lane
         FROM tasks.job AS j
         WHERE j.status = 'pending' AND j.limit_key = k.limit_key AND j.lane <> 'parked'
         LIMIT 1)
    ) AS w
), parked AS MATERIALIZED (
    SELECT j.job_id
    FROM tasks.job AS j JOIN waiting AS w USING (job_id)
    WHERE w.lane = 'parked' AND j.lane = 'parked' AND j.parked_on IS NULL
    FOR UPDATE OF j SKIP LOCKED
), freed AS (
    UPDATE tasks.job AS j
    SET lane = 'unchecked'
    FROM parked
    WHERE j.job_id = parked.job_id AND j.status = 'pending'
)
SELECT pg_notify('tasks', queue)::text AS rung FROM (SELECT DISTINCT queue FROM waiting) AS queues
