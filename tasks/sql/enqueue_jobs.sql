-- T0: – to pending, or the join of a pending job that has the key; any number of requests, in order.
-- ON CONFLICT DO UPDATE locks the joined row until the caller commits: nobody can claim it, and read its
-- inputs, before the caller's rows are visible. Whoever joins gets no worse service than a job of its own:
-- the earlier time, the higher priority, the later expiry, and a full budget of attempts and postpones from here
-- on. A request stands for `joins` more of its key, merged by the caller: one statement may touch a row once.
-- The join takes a parked job back into the lanes, for an unparking skips the rows that an open join has locked.
-- What many requests have in common is sent and computed once: their kind.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), kinds AS MATERIALIZED (
    SELECT
        k.kind, k.task, k.queue, k.scope, k.priority, k.after_tasks, k.lease_seconds, k.attempts_max,
        k.postpones_max, k.dedup_mode, k.joins, k.limit_key, k.limit_max, k.parent_count, k.on_parent_failure,
        k.pass_results, due.available_at, due.gated,
        clock.now + make_interval(secs => k.tier) AS created_at,
        CASE WHEN k.joins > 0 THEN clock.now END AS coalesced_at,
        GREATEST(k.expires_at, clock.now + make_interval(secs => k.expires)) AS expires_at,
        CASE WHEN due.available_at > clock.now THEN 'later' WHEN due.gated THEN 'unchecked' ELSE 'ready' END AS lane
    FROM json_to_recordset(%(kinds)s::json) AS k (
            kind int, task text, queue text, scope text, priority smallint, tier float8, after_tasks text[],
            available_at timestamptz, countdown float8, lease_seconds float8, attempts_max int, postpones_max int,
            dedup_mode text, joins int, expires_at timestamptz, expires float8, limit_key text, limit_max int,
            parent_count int, on_parent_failure text, pass_results text),
        clock,
        LATERAL (
            SELECT
                LEAST(k.available_at, clock.now + make_interval(secs => k.countdown)) AS available_at,
                k.after_tasks <> '{}' OR k.limit_key IS NOT NULL OR k.parent_count > 0 AS gated) AS due
), enqueued AS (
    INSERT INTO tasks.job AS j (
        job_id, task, queue, scope, payload, priority, status, after_tasks, created_at, available_at,
        lease_seconds, attempts_max, postpones_max, dedup_key, dedup_mode, coalesced, coalesced_at,
        expires_at, limit_key, limit_max, parent_count, on_parent_failure, pass_results, gated, lane)
    SELECT
        g.job_id, k.task, k.queue, k.scope, g.payload, k.priority, 'pending', k.after_tasks, k.created_at,
        k.available_at, k.lease_seconds, k.attempts_max, k.postpones_max, g.dedup_key, k.dedup_mode, k.joins,
        k.coalesced_at, k.expires_at, k.limit_key, k.limit_max, k.parent_count, k.on_parent_failure,
        k.pass_results, k.gated, k.lane
    FROM ROWS FROM (
            unnest(%(job_ids)s::uuid[], %(kind_of)s::int[]),
            jsonb_array_elements(%(payloads)s::jsonb),
            jsonb_array_elements_text(%(dedup_keys)s::jsonb)
        ) WITH ORDINALITY AS g (job_id, kind, payload, dedup_key, place)
        JOIN kinds AS k USING (kind)
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
    RETURNING j.job_id, j.task, j.dedup_key, j.queue, j.available_at
), limited AS (
    INSERT INTO tasks.limit_gate (limit_key)
    SELECT DISTINCT limit_key FROM kinds WHERE limit_key IS NOT NULL ORDER BY limit_key
    ON CONFLICT DO NOTHING
), rung AS MATERIALIZED (
    SELECT pg_notify('tasks', due.queue) FROM (
        SELECT DISTINCT e.queue FROM enqueued AS e, clock WHERE e.available_at <= clock.now) AS due
)
-- Without a key the caller knows: what it has sent is what there is.
SELECT job_id, task, dedup_key FROM enqueued WHERE dedup_key IS NOT NULL
UNION ALL
SELECT NULL, NULL, NULL FROM rung
