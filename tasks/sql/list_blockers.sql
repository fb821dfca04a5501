-- The jobs that shut the gate of a pending job: the same function that the claim asks. `passed`: how many jobs of
-- those tasks have come to an end while this one waited; many of them mean that it starves behind a stream.
SELECT
    b.job_id, b.task, b.status, b.since,
    count(*) OVER () AS blockers,
    (SELECT count(*) FROM tasks.job AS e
     WHERE e.scope = j.scope AND e.scope <> '' AND e.task = ANY (j.after_tasks) AND e.finished_at > j.created_at)
        AS passed
FROM tasks.job AS j, tasks.blockers(j.job_id, j.scope, j.after_tasks) AS b
WHERE j.job_id = %(job_id)s::uuid AND j.status = 'pending'
ORDER BY b.status DESC, b.since, b.job_id
LIMIT 1
