-- Who runs a job, on the database's clock.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
)
SELECT
    extract(epoch FROM j.lease_expires_at - clock.now)::float8 AS lease_left,
    extract(epoch FROM clock.now - j.heartbeat_at)::float8 AS heartbeat_age,
    extract(epoch FROM clock.now - j.claimed_at)::float8 AS running_for
FROM tasks.job AS j, clock
WHERE j.job_id = %(job_id)s::uuid AND j.status = 'running'
