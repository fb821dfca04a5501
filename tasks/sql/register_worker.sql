-- A worker says that it is there; again and again, so that `last_seen` is recent while it lives.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
)
INSERT INTO tasks.worker AS w (worker_id, host, pid, queues, tasks, version, started_at, last_seen)
SELECT
    %(worker_id)s::text, %(host)s::text, %(pid)s::int, %(queues)s::text[], %(tasks)s::text[],
    %(version)s::text, clock.now, clock.now
FROM clock
ON CONFLICT (worker_id) DO UPDATE SET
    host = EXCLUDED.host, pid = EXCLUDED.pid, queues = EXCLUDED.queues, tasks = EXCLUDED.tasks,
    version = EXCLUDED.version, last_seen = EXCLUDED.last_seen
