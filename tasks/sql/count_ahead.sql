-- How many jobs of its queue a claim would come to before a pending job; counted up to a bound. `finished_at` is
-- said for the partial index of unfinished jobs.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
)
SELECT count(*) FROM (
    SELECT FROM tasks.job AS mine
    JOIN tasks.job AS j ON j.queue = mine.queue AND j.job_id <> mine.job_id
    CROSS JOIN clock
    WHERE mine.job_id = %(job_id)s::uuid AND mine.status = 'pending'
      AND j.finished_at IS NULL AND j.status = 'pending' AND (j.lane <> 'parked' OR j.parked_on IN (SELECT u.job_id FROM tasks.unparking AS u)) AND j.available_at <= clock.now
      AND (j.priority > mine.priority
           OR (j.priority = mine.priority AND (j.created_at, j.seq) < (mine.created_at, mine.seq)))
    LIMIT %(limit)s::bigint
) AS ahead
