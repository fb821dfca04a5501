-- T0: – to pending, or the join of a pending job that has the key; any number of requests, in order.
-- ON CONFLICT DO UPDATE locks the joined row until the caller commits: nobody can claim it, and read its
-- inputs, before the caller's rows are visible. Whoever joins gets no worse service than a job of its own:
-- the earlier time, the higher priority, the later expiry, and a full budget of attempts and postpones from here
-- on. A request stands for `joins` more of its key, merged by the caller: one statement may touch a row once.
-- The join takes a parked job back into the lanes, for an unparking skips the rows that an open join has locked.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), enqueued AS (
    INSERT INTO tasks.job AS j (
        job_id, task, queue, scope, payload, priority, status, after_tasks, created_at, available_at,
        lease_seconds, attempts_max, postpones_max, dedup_key, dedup_mode, coalesced, coalesced_at,
        expires_at, limit_key, limit_max, parent_count, on_parent_failure, pass_results, gated, lane)
    SELECT
        g.job_id, g.task, g.queue, g.scope, g.payload::jsonb, g.priority, 'pending', g.after_tasks::text[],
        clock.now + make_interval(secs => g.tier), due.available_at,
        g.lease_seconds, g.attempts_max, g.postpones_max, g.dedup_key, g.dedup_mode,
        g.joins, CASE WHEN g.joins > 0 THEN clock.now END,
        GREATEST(g.expires_at, clock.now + make_interval(secs => g.expires)),
        g.limit_key, g.limit_max, g.parent_count, g.on_parent_failure, g.pass_results, due.gated,
        CASE WHEN due.available_at > clock.now THEN 'later' WHEN due.gated THEN 'unchecked' ELSE 'ready' END
    FROM unnest(
            %(job_id)s::uuid[], %(task)s::text[], %(queue)s::text[], %(scope)s::text[], %(payload)s::text[],
            %(priority)s::smallint[], %(tier)s::float8[], %(after_tasks)s::text[], %(available_at)s::timestamptz[],
            %(countdown)s::float8[], %(lease_seconds)s::float8[], %(attempts_max)s::int[],
            %(postpones_max)s::int[], %(dedup_key)s::text[], %(dedup_mode)s::text[], %(joins)s::int[],
            %(expires_at)s::timestamptz[], %(expires)s::float8[], %(limit_key)s::text[], %(limit_max)s::int[],
            %(parent_count)s::int[], %(on_parent_failure)s::text[], %(pass_results)s::text[])
        WITH ORDINALITY AS g (
            job_id, task, queue, scope, payload,
            priority, tier, after_tasks, available_at,
            countdown, lease_seconds, attempts_max,
            postpones_max, dedup_key, dedup_mode, joins,
            expires_at, expires, limit_key, limit_max,
            parent_count, on_parent_failure, pass_results, place),
        clock,
        LATERAL (
            SELECT
                LEAST(g.available_at, clock.now + make_interval(secs => g.countdown)) AS available_at,
                g.after_tasks <> '{}' OR g.limit_key IS NOT NULL OR g.parent_count > 0 AS gated) AS due
    ORDER BY g.place
    ON CONFLICT (task, dedup_key) WHERE status = 'pending' AND dedup_key IS NOT NULL
    DO UPDATE SET
        coalesced = j.coalesced + 1 + EXCLUDED.coalesced,
        coalesced_at = (SELECT now FROM clock),
        available_at = LEAST(j.available_at, EXCLUDED.available_at),
        priority = GREATEST(j.priority, EXCLUDED.priority),
        attempts_max = GREATEST(j.attempts_max, j.attempt_count + EXCLUDED.attempts_max),
        postpones_max = GREATEST(j.postpones_max, j.postpone_count + EXCLUDED.postpones_max),
        expires_at = CASE WHEN j.expires_at IS NOT NULL AND EXCLUDED.expires_at IS NOT NULL
            THEN GREATEST(j.expires_at, EXCLUDED.expires_at) END,
        lane = CASE
            WHEN LEAST(j.available_at, EXCLUDED.available_at) > (SELECT now FROM clock) THEN 'later'
            WHEN j.gated THEN 'unchecked'
            ELSE 'ready'
        END,
        parked_on = NULL
    RETURNING j.job_id, j.task, j.dedup_key, j.queue, j.available_at, j.limit_key
), limited AS (
    INSERT INTO tasks.limit_gate (limit_key)
    SELECT DISTINCT limit_key FROM enqueued WHERE limit_key IS NOT NULL ORDER BY limit_key
    ON CONFLICT DO NOTHING
), rung AS MATERIALIZED (
    SELECT pg_notify('tasks', due.queue) FROM (
        SELECT DISTINCT e.queue FROM enqueued AS e, clock WHERE e.available_at <= clock.now) AS due
)
SELECT job_id, task, dedup_key, (SELECT count(*) FROM rung) AS rung FROM enqueued
