-- The parent that a pending job waits for, one that has failed first: the same function that the claim asks.
SELECT p.parent_id, p.task, p.status, p.since, p.in_place_of, count(*) OVER () AS parents
FROM tasks.job AS j, tasks.unmet_parents(j.job_id, j.on_parent_failure) AS p
WHERE j.job_id = %(job_id)s::uuid AND j.status = 'pending'
ORDER BY COALESCE(p.status IN ('pending', 'running'), false), p.position
LIMIT 1
