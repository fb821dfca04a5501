-- T0 for the modes `once` and `reject`: – to pending, or no row when the key is taken.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), enqueued AS (
    INSERT INTO tasks.job AS j (
        job_id, task, queue, scope, payload, priority, status, after_tasks, created_at, available_at,
        lease_seconds, attempts_max, postpones_max, dedup_key, dedup_mode)
    SELECT
        %(job_id)s::uuid, %(task)s::text, %(queue)s::text, %(scope)s::text, %(payload)s::jsonb,
        %(priority)s::smallint, 'pending', %(after_tasks)s::text[],
        clock.now + make_interval(secs => %(tier)s::float8),
        COALESCE(%(available_at)s::timestamptz, clock.now + make_interval(secs => %(countdown)s::float8)),
        %(lease_seconds)s::float8, %(attempts_max)s::int, %(postpones_max)s::int,
        %(dedup_key)s::text, %(dedup_mode)s::text
    FROM clock
    ON CONFLICT DO NOTHING
    RETURNING j.job_id, j.queue, j.available_at
)
SELECT
    e.job_id,
    CASE WHEN e.available_at <= clock.now THEN pg_notify('tasks', e.queue)::text END AS notified
FROM enqueued AS e, clock
