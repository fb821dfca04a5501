-- What the parents of a job, or the heirs in place of them, returned, in order.
SELECT COALESCE(h.result, p.result) AS result
FROM tasks.dependency AS d
LEFT JOIN tasks.job AS p ON p.job_id = d.parent_id
LEFT JOIN tasks.job AS h ON h.job_id = tasks.last_heir(p.superseded_by, d.child_id)
WHERE d.child_id = %(job_id)s::uuid
ORDER BY d.position
