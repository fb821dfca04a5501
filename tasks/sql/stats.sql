-- Figures of the whole queue in one row.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), live AS MATERIALIZED (
    SELECT w.tasks, w.queues
    FROM tasks.worker AS w, clock
    WHERE w.last_seen > clock.now - make_interval(secs => %(live)s::float8)
)
SELECT
    (SELECT COALESCE(jsonb_object_agg(status, jobs), '{}')
       FROM (SELECT status, count(*) AS jobs FROM tasks.job GROUP BY status) AS by_status) AS counts,
    (SELECT count(*) FROM tasks.job AS j
      WHERE j.status = 'pending' AND j.available_at <= clock.now) AS due,
    (SELECT count(*) FROM tasks.job AS j
      WHERE j.status = 'pending'
        AND NOT EXISTS (SELECT FROM live WHERE j.task = ANY (live.tasks))) AS unknown,
    (SELECT extract(epoch FROM clock.now - min(j.available_at))::float8 FROM tasks.job AS j
      WHERE j.status = 'pending' AND j.available_at <= clock.now) AS oldest_due_seconds,
    (SELECT extract(epoch FROM clock.now - min(j.lease_expires_at))::float8 FROM tasks.job AS j
      WHERE j.status = 'running' AND j.lease_expires_at <= clock.now) AS oldest_expired_lease_seconds
FROM clock
