-- Under the locks of lock_limits: which ready jobs of these keys may be claimed now, as many of a key as it has
-- places left, in order. Counted before the claim: counting inside it would let two claims through.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
)
SELECT a.job_id
FROM unnest(%(keys)s::text[]) AS k (limit_key)
CROSS JOIN LATERAL (SELECT count(*) AS jobs FROM tasks.running_of(k.limit_key)) AS running
CROSS JOIN LATERAL (
    SELECT
        j.job_id, j.limit_max,
        row_number() OVER (ORDER BY j.priority DESC, j.created_at, j.seq) AS place
    FROM tasks.job AS j
    WHERE j.status = 'pending' AND j.lane = 'ready' AND j.limit_key = k.limit_key
      AND j.available_at <= (SELECT now FROM clock)
      AND (j.expires_at IS NULL OR j.expires_at > (SELECT now FROM clock))
      AND j.attempt_count < j.attempts_max
      AND j.task = ANY (%(tasks)s::text[])
      AND j.queue = ANY (%(queues)s::text[])
      AND NOT EXISTS (SELECT FROM tasks.queue AS q WHERE q.queue = j.queue)
      AND (j.after_tasks = '{}' OR (
          SELECT b.job_id FROM tasks.blockers(j.job_id, j.scope, j.after_tasks) AS b ORDER BY b.task LIMIT 1) IS NULL)
      AND (j.parent_count = 0 OR (
          SELECT p.parent_id FROM tasks.unmet_parents(j.job_id, j.on_parent_failure) AS p
          ORDER BY p.position LIMIT 1) IS NULL)
    ORDER BY j.priority DESC, j.created_at, j.seq
    LIMIT %(limit)s::bigint
) AS a
WHERE running.jobs + a.place <= a.limit_max
