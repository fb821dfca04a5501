-- Every queue that has unfinished jobs or is paused.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), busy AS (
    SELECT
        j.queue,
        count(*) FILTER (WHERE j.status = 'pending') AS pending,
        count(*) FILTER (WHERE j.status = 'pending' AND j.available_at <= clock.now) AS due,
        count(*) FILTER (WHERE j.status = 'running') AS running
    FROM tasks.job AS j, clock
    WHERE j.finished_at IS NULL
    GROUP BY j.queue
)
SELECT
    queue, q.paused_at, q.reason,
    COALESCE(b.pending, 0) AS pending, COALESCE(b.due, 0) AS due, COALESCE(b.running, 0) AS running
FROM busy AS b FULL JOIN tasks.queue AS q USING (queue)
ORDER BY queue
