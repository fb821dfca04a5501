-- For the sweep: the limits that have parked jobs and places left.
WITH RECURSIVE keys AS (
    (SELECT j.limit_key FROM tasks.job AS j
     WHERE j.status = 'pending' AND j.limit_key IS NOT NULL
     ORDER BY j.limit_key LIMIT 1)
    UNION ALL
    SELECT (
        SELECT j.limit_key FROM tasks.job AS j
        WHERE j.status = 'pending' AND j.limit_key IS NOT NULL AND j.limit_key > k.limit_key
        ORDER BY j.limit_key LIMIT 1)
    FROM keys AS k WHERE k.limit_key IS NOT NULL
)
SELECT k.limit_key
FROM keys AS k
CROSS JOIN LATERAL (SELECT count(*) AS jobs FROM tasks.running_of(k.limit_key)) AS running
CROSS JOIN LATERAL (
    SELECT j.limit_max FROM tasks.job AS j
    WHERE j.status = 'pending' AND j.limit_key = k.limit_key AND j.lane = 'parked' AND j.parked_on IS NULL
    ORDER BY j.priority DESC, j.created_at, j.seq LIMIT 1
) AS first
WHERE running.jobs < first.limit_max
