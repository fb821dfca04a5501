-- Retention: deletes one bite of jobs that ended long enough ago, with their attempts, parents and operations.
-- Kept beyond that: a parent, or its heir, that a waiting child still asks for, and a job of mode `once`, whose key is unique for
-- as long as the row is there. A periodic task's job goes: its schedule's row remembers the nominal time.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), kept AS MATERIALIZED (
    SELECT k.status, clock.now - make_interval(secs => k.seconds) AS until
    FROM unnest(%(statuses)s::text[], %(seconds)s::float8[]) AS k (status, seconds), clock
), old AS MATERIALIZED (
    SELECT j.job_id
    FROM tasks.job AS j JOIN kept AS k ON k.status = j.status
    WHERE j.finished_at <= k.until
      AND j.finished_at <= (SELECT max(until) FROM kept)
      AND (j.dedup_mode IS DISTINCT FROM 'once' OR %(forget_once)s::bool OR EXISTS (
          SELECT FROM tasks.schedule AS s WHERE starts_with(j.dedup_key, 'periodic:' || s.name || '@')))
      AND NOT EXISTS (
          WITH RECURSIVE line AS (
              SELECT j.job_id
              UNION ALL
              SELECT s.job_id FROM line AS l JOIN tasks.job AS s ON s.superseded_by = l.job_id
          )
          SELECT FROM line AS l JOIN tasks.dependency AS d ON d.parent_id = l.job_id
              JOIN tasks.job AS c ON c.job_id = d.child_id
          WHERE c.finished_at IS NULL)
    ORDER BY j.finished_at
    LIMIT %(limit)s::bigint
    FOR UPDATE OF j SKIP LOCKED
), pruned AS (
    DELETE FROM tasks.job AS j USING old WHERE j.job_id = old.job_id AND j.finished_at IS NOT NULL
    RETURNING j.job_id
), attempts AS (
    DELETE FROM tasks.ended_attempt AS a USING pruned AS p WHERE a.job_id = p.job_id
), parents AS (
    DELETE FROM tasks.dependency AS d USING pruned AS p WHERE d.child_id = p.job_id
), operations AS (
    DELETE FROM tasks.operation AS o USING pruned AS p WHERE o.job_id = p.job_id
)
SELECT count(*) FROM pruned
