-- Progress of an attempt: running stays running.
UPDATE tasks.job AS j
SET progress = %(progress)s::jsonb
WHERE j.job_id = %(job_id)s::uuid AND j.claim_token = %(token)s::uuid AND j.status = 'running'
RETURNING j.job_id
