-- Before an operator's move: lock the job. The move is the next statement, so that it sees the attempt of a claim
-- that this one has waited for.
SELECT j.status FROM tasks.job AS j WHERE j.job_id = %(job_id)s::uuid FOR UPDATE
