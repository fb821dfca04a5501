-- Why a pending job is not claimable: the predicates of claim_jobs, one column each.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), live AS MATERIALIZED (
    SELECT w.tasks, w.queues
    FROM tasks.worker AS w, clock
    WHERE w.last_seen > clock.now - make_interval(secs => %(live)s::float8)
)
SELECT
    j.available_at <= clock.now AS due,
    extract(epoch FROM j.available_at - clock.now)::float8 AS due_in,
    j.attempt_count < j.attempts_max AS budget_left,
    EXISTS (SELECT FROM live WHERE j.task = ANY (live.tasks)) AS task_known,
    EXISTS (SELECT FROM live WHERE j.task = ANY (live.tasks) AND j.queue = ANY (live.queues)) AS queue_served
FROM tasks.job AS j, clock
WHERE j.job_id = %(job_id)s::uuid AND j.status = 'pending'
