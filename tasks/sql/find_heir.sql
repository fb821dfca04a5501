-- The pending job that holds the key of this one.
SELECT h.job_id
FROM tasks.job AS j, tasks.heirs(j.job_id, j.task, j.dedup_key) AS h
WHERE j.job_id = %(job_id)s::uuid
