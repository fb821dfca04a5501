-- The jobs that shut the gate of a pending job: the same function that the claim asks.
SELECT
    b.job_id, b.task, b.status, b.since,
    count(*) OVER () AS blockers
FROM tasks.job AS j, tasks.blockers(j.job_id, j.scope, j.after_tasks) AS b
WHERE j.job_id = %(job_id)s::uuid AND j.status = 'pending'
ORDER BY b.status DESC, b.since, b.job_id
LIMIT 1
