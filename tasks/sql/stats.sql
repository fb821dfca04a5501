-- Figures of the whole queue in one row.
-- Finished jobs are most of the table. Where they are very many, those that have succeeded are not counted but taken
-- from the planner's estimate of the table; all others are exact, from partial indexes.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), live AS MATERIALIZED (
    SELECT w.tasks, w.queues
    FROM tasks.worker AS w, clock
    WHERE w.last_seen > clock.now - make_interval(secs => %(live)s::float8)
), size AS MATERIALIZED (
    SELECT c.reltuples::bigint AS jobs, c.reltuples > %(counted_max)s::float8 AS is_large
    FROM pg_class AS c WHERE c.oid = 'tasks.job'::regclass
), others AS MATERIALIZED (
    SELECT j.status, count(*) AS jobs FROM tasks.job AS j WHERE j.finished_at IS NULL GROUP BY j.status
    UNION ALL
    SELECT j.status, count(*) AS jobs
    FROM tasks.job AS j WHERE j.status IN ('failed', 'cancelled', 'quarantined') GROUP BY j.status
), by_status AS MATERIALIZED (
    SELECT status, jobs FROM others
    UNION ALL
    SELECT 'succeeded', CASE
        WHEN size.is_large THEN GREATEST(0, size.jobs - (SELECT COALESCE(sum(jobs), 0) FROM others))
        ELSE (SELECT count(*) FROM tasks.job AS j WHERE j.status = 'succeeded')
    END
    FROM size
)
SELECT
    (SELECT COALESCE(jsonb_object_agg(status, jobs), '{}') FROM by_status WHERE jobs > 0) AS counts,
    (SELECT is_large FROM size) AS estimated,
    (SELECT count(*) FROM tasks.job AS j
      WHERE j.status = 'pending' AND j.finished_at IS NULL AND j.available_at <= clock.now) AS due,
    (SELECT count(*) FROM tasks.job AS j
      WHERE j.status = 'pending' AND j.finished_at IS NULL
        AND NOT EXISTS (SELECT FROM live WHERE j.task = ANY (live.tasks))) AS unknown,
    (SELECT extract(epoch FROM clock.now - min(j.available_at))::float8 FROM tasks.job AS j
      WHERE j.status = 'pending' AND j.finished_at IS NULL AND j.available_at <= clock.now) AS oldest_due_seconds,
    (SELECT extract(epoch FROM clock.now - min(j.lease_expires_at))::float8 FROM tasks.job AS j
      WHERE j.status = 'running' AND j.lease_expires_at <= clock.now) AS oldest_expired_lease_seconds
FROM clock
