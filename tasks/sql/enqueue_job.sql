-- T0: – to pending, or the join of a pending job that has the key.
-- ON CONFLICT DO UPDATE locks the joined row until the caller commits: nobody can claim it, and read its
-- inputs, before the caller's rows are visible. Whoever joins gets no worse service than a job of its own:
-- the earlier time, the higher priority, and a full budget of attempts and postpones from here on.
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
    ON CONFLICT (task, dedup_key) WHERE status = 'pending' AND dedup_key IS NOT NULL
    DO UPDATE SET
        coalesced = j.coalesced + 1,
        coalesced_at = (SELECT now FROM clock),
        available_at = LEAST(j.available_at, EXCLUDED.available_at),
        priority = GREATEST(j.priority, EXCLUDED.priority),
        attempts_max = GREATEST(j.attempts_max, j.attempt_count + EXCLUDED.attempts_max),
        postpones_max = GREATEST(j.postpones_max, j.postpone_count + EXCLUDED.postpones_max)
    RETURNING j.job_id, j.queue, j.coalesced, j.available_at
)
SELECT
    e.job_id,
    CASE WHEN e.coalesced = 0 THEN 'inserted' ELSE 'joined' END AS outcome,
    CASE WHEN e.available_at <= clock.now THEN pg_notify('tasks', e.queue)::text END AS notified
FROM enqueued AS e, clock
