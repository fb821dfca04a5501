-- The job that holds a key: the one of mode `once`, else the pending one.
SELECT j.job_id
FROM tasks.job AS j
WHERE j.task = %(task)s::text
  AND j.dedup_key = %(dedup_key)s::text
  AND (j.dedup_mode = 'once' OR j.status = 'pending')
ORDER BY j.dedup_mode = 'once' DESC
LIMIT 1
