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
    COALESCE(j.expires_at <= clock.now, false) AS expired,
    j.attempt_count < j.attempts_max AS budget_left,
    q.paused_at, q.reason AS pause_reason,
    (SELECT count(*) FROM tasks.running_of(j.limit_key)) AS running,
    (SELECT r.job_id FROM tasks.running_of(j.limit_key) AS r ORDER BY r.since LIMIT 1) AS runner_id,
    EXISTS (SELECT FROM tasks.unparking AS u WHERE u.job_id = j.parked_on) AS unparking,
    EXISTS (SELECT FROM live WHERE j.task = ANY (live.tasks)) AS task_known,
    EXISTS (SELECT FROM live WHERE j.task = ANY (live.tasks) AND j.queue = ANY (live.queues)) AS queue_served
FROM tasks.job AS j CROSS JOIN clock LEFT JOIN tasks.queue AS q ON q.queue = j.queue
WHERE j.job_id = %(job_id)s::uuid AND j.status = 'pending'
