-- T0 for requests that differ in nothing but id and payload and have no key: – to pending, in order. Nothing is there to
-- be joined, and what they have in common is sent and computed once. The bell rings once.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), kind AS MATERIALIZED (
    SELECT
        clock.now, clock.now + make_interval(secs => %(tier)s::float8) AS created_at,
        COALESCE(%(available_at)s::timestamptz, clock.now + make_interval(secs => %(countdown)s::float8)) AS available_at,
        COALESCE(%(expires_at)s::timestamptz, clock.now + make_interval(secs => %(expires)s::float8)) AS expires_at,
        %(after_tasks)s::text[] <> '{}' OR %(limit_key)s::text IS NOT NULL AS gated
    FROM clock
), enqueued AS (
    INSERT INTO tasks.job (
        job_id, task, queue, scope, payload, priority, status, after_tasks, created_at, available_at,
        lease_seconds, attempts_max, postpones_max,
        expires_at, limit_key, limit_max, on_parent_failure, pass_results, gated, lane)
    SELECT
        g.job_id, %(task)s::text, %(queue)s::text, %(scope)s::text, g.payload, %(priority)s::smallint, 'pending',
        %(after_tasks)s::text[], kind.created_at, kind.available_at,
        %(lease_seconds)s::float8, %(attempts_max)s::int, %(postpones_max)s::int,
        kind.expires_at, %(limit_key)s::text, %(limit_max)s::int, %(on_parent_failure)s::text,
        %(pass_results)s::text, kind.gated,
        CASE WHEN kind.available_at > kind.now THEN 'later' WHEN kind.gated THEN 'unchecked' ELSE 'ready' END
    FROM kind,
        ROWS FROM (unnest(%(job_ids)s::uuid[]), jsonb_array_elements(%(payloads)s::jsonb))
            WITH ORDINALITY AS g (job_id, payload, place)
    ORDER BY g.place
), limited AS (
    INSERT INTO tasks.limit_gate (limit_key)
    SELECT %(limit_key)s::text WHERE %(limit_key)s::text IS NOT NULL
    ON CONFLICT DO NOTHING
)
SELECT pg_notify('tasks', %(queue)s::text)::text AS rung FROM kind WHERE available_at <= now
