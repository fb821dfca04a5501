-- The first unchecked jobs, in order: one whose gates are open becomes ready, one that is shut is parked on the
-- job that shuts it, or by its limit. Parking takes a share lock on the blocker and looks at it again under that
-- lock: whoever ends the blocker then waits for our commit, and unparks in a later statement. A blocker that
-- cannot be locked is about to change; its job stays unchecked. So does one whose limit somebody else counts.
WITH head AS MATERIALIZED (
    SELECT j.job_id
    FROM tasks.job AS j
    WHERE j.status = 'pending' AND j.lane = 'unchecked'
    ORDER BY j.priority DESC, j.created_at, j.seq
    LIMIT %(limit)s::bigint
    FOR UPDATE OF j SKIP LOCKED
), judged AS MATERIALIZED (
    SELECT
        j.job_id, j.on_parent_failure,
        gate.job_id AS gate_id, parent.parent_id, parent.status IN ('pending', 'running') AS parent_lives,
        j.limit_key IS NULL OR j.limit_key = ANY (%(keys)s::text[]) AS countable,
        j.limit_key IS NOT NULL AND running.jobs >= j.limit_max AS reached
    FROM head
    JOIN tasks.job AS j USING (job_id)
    LEFT JOIN LATERAL (
        SELECT b.job_id FROM tasks.blockers(j.job_id, j.scope, j.after_tasks) AS b ORDER BY b.task LIMIT 1) AS gate
        ON j.after_tasks <> '{}'
    -- The last parent: of those that run one after the other it is the one to end last.
    LEFT JOIN LATERAL (
        SELECT p.parent_id, p.status FROM tasks.unmet_parents(j.job_id, j.on_parent_failure) AS p
        ORDER BY p.position DESC LIMIT 1) AS parent
        ON j.parent_count > 0 AND gate.job_id IS NULL
    LEFT JOIN LATERAL (SELECT count(*) AS jobs FROM tasks.running_of(j.limit_key)) AS running
        ON j.limit_key IS NOT NULL
), held AS MATERIALIZED (
    SELECT
        b.job_id, b.finished_at IS NULL AS live, b.status = 'succeeded' AS succeeded,
        b.superseded_by IS NOT NULL AS superseded
    FROM tasks.job AS b
    WHERE b.job_id IN (SELECT COALESCE(gate_id, parent_id) FROM judged)
    FOR SHARE OF b SKIP LOCKED
), decided AS MATERIALIZED (
    SELECT
        j.job_id,
        CASE
            WHEN j.gate_id IS NOT NULL THEN CASE WHEN h.live THEN 'parked' ELSE 'unchecked' END
            WHEN j.parent_id IS NOT NULL THEN CASE
                -- Just now: its heir is to be found.
                WHEN j.parent_lives AND h.superseded THEN 'unchecked'
                WHEN h.live OR (NOT h.succeeded AND j.on_parent_failure <> 'run') THEN 'parked'
                WHEN h.job_id IS NULL AND NOT EXISTS (SELECT FROM tasks.job AS p WHERE p.job_id = j.parent_id)
                    THEN 'parked'
                ELSE 'unchecked'
            END
            WHEN NOT j.countable THEN 'unchecked'
            WHEN j.reached THEN 'parked'
            ELSE 'ready'
        END AS lane,
        COALESCE(j.gate_id, j.parent_id) AS blocker_id
    FROM judged AS j LEFT JOIN held AS h ON h.job_id = COALESCE(j.gate_id, j.parent_id)
), moved AS (
    UPDATE tasks.job AS j
    SET lane = d.lane, parked_on = CASE WHEN d.lane = 'parked' THEN d.blocker_id END
    FROM decided AS d
    -- By the id alone, the row is locked: status and lane would lead the planner to a partial index that it takes for
    -- empty, to walk all of it for each row.
    WHERE j.job_id = d.job_id AND d.lane <> 'unchecked'
    RETURNING j.lane, j.queue
), rung AS MATERIALIZED (
    -- More than this claim takes: whoever looked meanwhile found them locked.
    SELECT pg_notify('tasks', more.queue) FROM (
        SELECT DISTINCT queue FROM moved
        WHERE lane = 'ready' AND (SELECT count(*) FROM moved WHERE lane = 'ready') > %(claims)s::bigint) AS more
)
SELECT
    (SELECT count(*) FROM head) AS seen,
    (SELECT count(*) FROM moved) AS moved,
    (SELECT count(*) FROM rung) AS rung
