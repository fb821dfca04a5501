-- What a refused writer is told: the state of the job whose token it no longer holds.
SELECT status FROM tasks.job WHERE job_id = %(job_id)s::uuid
