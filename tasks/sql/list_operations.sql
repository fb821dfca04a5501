-- What people did to a job, in order.
SELECT job_id, at, action, reason
FROM tasks.operation
WHERE job_id = %(job_id)s::uuid
ORDER BY seq
