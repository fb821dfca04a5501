-- What the parents of a job returned, in order.
SELECT p.result
FROM tasks.dependency AS d LEFT JOIN tasks.job AS p ON p.job_id = d.parent_id
WHERE d.child_id = %(job_id)s::uuid
ORDER BY d.position
