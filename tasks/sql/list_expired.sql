-- Running jobs whose lease is over, oldest lease first: for the sweep that goes row by row.
SELECT j.job_id
FROM tasks.job AS j
WHERE j.status = 'running'
  AND j.lease_expires_at <= COALESCE(%(now)s::timestamptz, clock_timestamp())
ORDER BY j.lease_expires_at
LIMIT %(limit)s::bigint
