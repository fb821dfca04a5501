-- T1: pending to running. Claims a batch in order, returns exactly its own rows, which are the open attempts.
-- The lane is a hint: it says where to look. The lock clause re-reads `j` when it changed after the snapshot, but
-- the gate's blockers come from the snapshot: a blocker that was committed in between is not seen. That claim is
-- early, not wrong: its task finds the gap, sees the live blocker and postpones itself. Limits are counted before,
-- under their locks: see admit_limited. ORDER BY makes the planner come to a blocker by its index, not by luck.
-- The planner's settings, changed by promote_due, are what they were afterwards.
-- A token is a hash of one random number of the statement and of the job's id: nobody can guess it, nothing has it
-- twice, and a server without OpenSSL need not open its source of random numbers for each job.
WITH clock AS MATERIALIZED (
    SELECT
        COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now, gen_random_uuid()::text AS random,
        set_config('enable_seqscan', %(seqscan)s::text, true), set_config('jit', %(jit)s::text, true),
        ARRAY(SELECT unnest(%(queues)s::text[]) EXCEPT SELECT q.queue FROM tasks.queue AS q) AS queues
), picked AS MATERIALIZED (
    SELECT j.job_id
    FROM tasks.job AS j
    WHERE j.status = 'pending'
      AND j.lane = 'ready'
      AND j.available_at <= (SELECT now FROM clock)
      AND (j.expires_at IS NULL OR j.expires_at > (SELECT now FROM clock))
      AND j.attempt_count < j.attempts_max
      AND j.task = ANY (%(tasks)s::text[])
      AND j.queue = ANY ((SELECT queues FROM clock)::text[])
      AND (NOT j.gated OR (
            (j.limit_key IS NULL OR j.job_id = ANY (%(admitted)s::uuid[]))
            AND (j.after_tasks = '{}' OR (
                SELECT b.job_id FROM tasks.blockers(j.job_id, j.scope, j.after_tasks) AS b
                ORDER BY b.task LIMIT 1) IS NULL)
            AND (j.parent_count = 0 OR (
                SELECT p.parent_id FROM tasks.unmet_parents(j.job_id, j.on_parent_failure) AS p
                ORDER BY p.position LIMIT 1) IS NULL)))
    ORDER BY j.priority DESC, j.created_at, j.seq
    LIMIT %(limit)s::bigint
    FOR UPDATE OF j SKIP LOCKED
), claimed AS (
    UPDATE tasks.job AS j
    SET status = 'running',
        claim_token = md5(clock.random || j.job_id::text)::uuid,
        claimed_by = %(worker)s::text,
        -- A join that was committed between the look at the clock and the lock came before this run.
        claimed_at = GREATEST(clock.now, j.coalesced_at),
        heartbeat_at = clock.now,
        started_at = GREATEST(clock.now, j.coalesced_at),
        lease_expires_at = clock.now + make_interval(secs => j.lease_seconds),
        attempt_count = j.attempt_count + 1,
        claim_count = j.claim_count + 1
    FROM clock
    WHERE j.job_id = ANY (ARRAY(SELECT job_id FROM picked))
    RETURNING
        j.job_id, j.claim_token, j.task, j.queue, j.scope, j.payload, j.priority, j.claim_count AS attempt_number,
        j.attempt_count, j.attempts_max, j.postpone_count, j.postpones_max, j.lease_seconds, j.lease_expires_at,
        j.claimed_at, j.created_at, j.available_at, j.dedup_key, j.coalesced, j.expires_at, j.parent_count,
        j.pass_results, j.seq
)
SELECT
    job_id, claim_token, task, queue, scope, payload, priority, attempt_number, attempt_count,
    attempts_max, postpone_count, postpones_max, lease_seconds, lease_expires_at, claimed_at, created_at,
    available_at, dedup_key, coalesced, expires_at, parent_count, pass_results
FROM claimed
ORDER BY priority DESC, created_at, seq
