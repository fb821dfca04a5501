-- The job that stands in the way of a new one: in mode `once` any that there ever was, else the pending one.
SELECT j.job_id
FROM tasks.job AS j
WHERE j.task = %(task)s::text
  AND j.dedup_key = %(dedup_key)s::text
  AND (j.status = 'pending' OR (j.dedup_mode = 'once' AND %(dedup_mode)s::text = 'once'))
ORDER BY j.dedup_mode = 'once' DESC
LIMIT 1
