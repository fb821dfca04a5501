-- The promises of the queue that its rows can show to be broken: one row per job and rule; none is right.
WITH history AS MATERIALIZED (
    SELECT
        a.*,
        lag(a.ended_at) OVER by_number AS previous_ended_at,
        lag(a.result) OVER by_number AS previous_result,
        a.number = max(a.number) OVER (PARTITION BY a.job_id) AS is_last
    FROM tasks.attempt AS a
    WINDOW by_number AS (PARTITION BY a.job_id ORDER BY a.number)
), per_job AS MATERIALIZED (
    SELECT
        j.job_id, j.status, j.claim_token, j.claim_count, j.attempt_count, j.coalesced_at,
        count(h.number) AS attempts,
        count(DISTINCT h.number) AS numbers,
        COALESCE(max(h.number), 0) AS last_number,
        count(*) FILTER (WHERE h.number IS NOT NULL AND h.result IS DISTINCT FROM 'RELEASED') AS charged,
        count(*) FILTER (WHERE h.result IS NOT NULL AND h.claim_token = j.claim_token) AS ended_of_holder,
        count(*) FILTER (WHERE h.result = 'SUCCEEDED') AS succeeded,
        count(*) FILTER (WHERE h.result = 'SUCCEEDED' AND h.is_last) AS succeeded_last,
        count(*) FILTER (WHERE h.claimed_at < h.previous_ended_at) AS overlapping,
        min(h.claimed_at) AS first_claimed_at,
        max(h.claimed_at) AS last_claimed_at
    FROM tasks.job AS j LEFT JOIN history AS h USING (job_id)
    GROUP BY j.job_id
), places AS (
    -- Taken and given back, in order; of those at one instant the ends come first.
    SELECT
        e.job_id, e.limit_max, e.change,
        sum(e.change) OVER (PARTITION BY e.limit_key ORDER BY e.at, e.change ROWS UNBOUNDED PRECEDING) AS running
    FROM tasks.job AS j
    JOIN tasks.attempt AS a USING (job_id)
    CROSS JOIN LATERAL (
        VALUES (j.job_id, j.limit_key, j.limit_max, a.claimed_at, 1), (j.job_id, j.limit_key, j.limit_max, a.ended_at, -1)
    ) AS e (job_id, limit_key, limit_max, at, change)
    WHERE j.limit_key IS NOT NULL AND e.at IS NOT NULL
)
SELECT job_id, 'its attempts are not numbered 1 to claim_count' AS rule
FROM per_job WHERE attempts <> claim_count OR numbers <> claim_count OR last_number <> claim_count
UNION ALL
SELECT job_id, 'attempt_count is not the number of attempts that were not released'
FROM per_job WHERE attempt_count <> charged
UNION ALL
SELECT job_id, 'it runs by the token of an attempt that has ended'
FROM per_job WHERE ended_of_holder > 0
UNION ALL
SELECT job_id, 'it succeeded without a last attempt that did, or the other way round'
FROM per_job
WHERE succeeded <> CASE WHEN status = 'succeeded' THEN 1 ELSE 0 END OR succeeded_last <> succeeded
UNION ALL
SELECT job_id, 'an attempt began before the one before had ended'
FROM per_job WHERE overlapping > 0
UNION ALL
SELECT DISTINCT h.job_id, 'it ran again after an end that only a person may undo, and no person did'
FROM history AS h
WHERE h.previous_result IN ('CANCELLED', 'QUARANTINED')
  AND NOT EXISTS (
      SELECT FROM tasks.operation AS o
      WHERE o.job_id = h.job_id AND o.action = 'retry' AND o.at BETWEEN h.previous_ended_at AND h.claimed_at)
UNION ALL
SELECT job_id, 'it succeeded, but was joined after its last run had begun'
FROM per_job WHERE status = 'succeeded' AND coalesced_at > last_claimed_at
UNION ALL
SELECT DISTINCT job_id, 'more jobs of its limit ran at one time than it allows'
FROM places WHERE change = 1 AND running > limit_max
UNION ALL
SELECT DISTINCT c.job_id, 'it ran before its parents had succeeded'
FROM tasks.job AS c
JOIN per_job AS r USING (job_id)
JOIN tasks.dependency AS d ON d.child_id = c.job_id
JOIN tasks.job AS p ON p.job_id = d.parent_id
LEFT JOIN tasks.job AS h ON h.job_id = tasks.last_heir(p.superseded_by, c.job_id)
WHERE c.on_parent_failure <> 'run'
  AND h.job_id IS DISTINCT FROM c.job_id
  AND (COALESCE(h.status, p.status) <> 'succeeded' OR COALESCE(h.finished_at, p.finished_at) > r.first_claimed_at)
  AND r.first_claimed_at IS NOT NULL
  -- A person's retry of a superseded parent takes back who stood in for it: what the child had seen is not told any more.
  AND NOT EXISTS (
      SELECT FROM tasks.operation AS o JOIN tasks.job AS q USING (job_id)
      WHERE o.action = 'retry' AND o.at >= r.first_claimed_at
        AND (q.job_id = p.job_id OR (q.task = p.task AND q.dedup_key = p.dedup_key)))
UNION ALL
SELECT DISTINCT d.child_id, 'dependency without a job'
FROM tasks.dependency AS d WHERE NOT EXISTS (SELECT FROM tasks.job AS j WHERE j.job_id = d.child_id)
UNION ALL
SELECT a.job_id, 'attempt without a job'
FROM tasks.ended_attempt AS a WHERE NOT EXISTS (SELECT FROM tasks.job AS j WHERE j.job_id = a.job_id)
ORDER BY 1, 2
