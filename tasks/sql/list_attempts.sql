-- The attempts of one job, in order.
SELECT claim_token, job_id, number, worker, claimed_at, ended_at, result, error_code, error
FROM tasks.attempt
WHERE job_id = %(job_id)s::uuid
ORDER BY number
