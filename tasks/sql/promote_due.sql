-- Before a claim: pending jobs that have become due move from the lane `later` into the one where they are looked
-- for; has an end left jobs parked; and are there jobs with gates to look at: unchecked ones, ready ones, any with a
-- limit? ORDER BY in the probes keeps the planner on the partial indexes, which are nearly empty, whatever its
-- statistics say.
-- For the statements that follow, it must not take a walk over the table for a short one either: it guesses the
-- blockers of a job it has not seen to be many, or the claim to be worth compiling. The last one gives both back.
WITH clock AS MATERIALIZED (
    SELECT
        COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now,
        current_setting('enable_seqscan') AS seqscan, current_setting('jit') AS jit
), narrowed AS MATERIALIZED (
    SELECT seqscan, jit, set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true) FROM clock
), due AS MATERIALIZED (
    SELECT j.job_id
    FROM tasks.job AS j
    WHERE j.status = 'pending' AND j.lane = 'later' AND j.available_at <= (SELECT now FROM clock)
    ORDER BY j.available_at
    LIMIT %(limit)s::bigint
    FOR UPDATE OF j SKIP LOCKED
), promoted AS (
    UPDATE tasks.job AS j
    SET lane = CASE WHEN j.gated THEN 'unchecked' ELSE 'ready' END
    FROM due
    WHERE j.job_id = due.job_id
    RETURNING j.gated, j.queue
), rung AS MATERIALIZED (
    -- More than this claim takes: whoever looked meanwhile found them locked.
    SELECT pg_notify('tasks', more.queue) FROM (
        SELECT DISTINCT queue FROM promoted WHERE (SELECT count(*) FROM promoted) > %(claims)s::bigint) AS more
)
SELECT
    (SELECT count(*) FROM promoted) AS promoted,
    (SELECT count(*) FROM rung) AS rung,
    (SELECT seqscan FROM narrowed) AS seqscan,
    (SELECT jit FROM narrowed) AS jit,
    EXISTS (SELECT FROM tasks.unparking) AS unparking,
    EXISTS (SELECT FROM promoted WHERE gated)
    OR COALESCE((
        SELECT true FROM tasks.job AS j WHERE j.status = 'pending' AND j.lane = 'unchecked'
        ORDER BY j.priority DESC, j.created_at, j.seq LIMIT 1), false) AS unchecked,
    COALESCE((
        SELECT true FROM tasks.job AS j WHERE j.status = 'pending' AND j.lane = 'ready' AND j.gated
        ORDER BY j.priority DESC, j.created_at, j.seq LIMIT 1), false) AS gated,
    COALESCE((
        SELECT true FROM tasks.job AS j WHERE j.status = 'pending' AND j.limit_key IS NOT NULL
        ORDER BY j.limit_key LIMIT 1), false) AS limited
