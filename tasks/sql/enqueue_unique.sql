-- T0 for the modes `once` and `reject`: – to pending, or no row when the key is taken.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), due AS MATERIALIZED (
    SELECT
        COALESCE(%(available_at)s::timestamptz, clock.now + make_interval(secs => %(countdown)s::float8)) AS at,
        %(after_tasks)s::text[] <> '{}' OR %(limit_key)s::text IS NOT NULL OR %(parent_count)s::int > 0 AS gated
    FROM clock
), enqueued AS (
    INSERT INTO tasks.job AS j (
        job_id, task, queue, scope, payload, priority, status, after_tasks, created_at, available_at,
        lease_seconds, attempts_max, postpones_max, dedup_key, dedup_mode,
        expires_at, limit_key, limit_max, parent_count, on_parent_failure, pass_results, gated, lane)
    SELECT
        %(job_id)s::uuid, %(task)s::text, %(queue)s::text, %(scope)s::text, %(payload)s::jsonb,
        %(priority)s::smallint, 'pending', %(after_tasks)s::text[],
        clock.now + make_interval(secs => %(tier)s::float8), due.at,
        %(lease_seconds)s::float8, %(attempts_max)s::int, %(postpones_max)s::int,
        %(dedup_key)s::text, %(dedup_mode)s::text,
        COALESCE(%(expires_at)s::timestamptz, clock.now + make_interval(secs => %(expires)s::float8)),
        %(limit_key)s::text, %(limit_max)s::int, %(parent_count)s::int, %(on_parent_failure)s::text,
        %(pass_results)s::text, due.gated,
        CASE WHEN due.at > clock.now THEN 'later' WHEN due.gated THEN 'unchecked' ELSE 'ready' END
    FROM clock, due
    ON CONFLICT DO NOTHING
    RETURNING j.job_id, j.queue, j.available_at, j.limit_key
), limited AS (
    INSERT INTO tasks.limit_gate (limit_key)
    SELECT limit_key FROM enqueued WHERE limit_key IS NOT NULL
    ON CONFLICT DO NOTHING
)
SELECT
    e.job_id,
    CASE WHEN e.available_at <= clock.now THEN pg_notify('tasks', e.queue)::text END AS notified
FROM enqueued AS e, clock
