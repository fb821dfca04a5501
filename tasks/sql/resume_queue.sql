-- The queue is claimed from again.
WITH resumed AS (
    DELETE FROM tasks.queue AS q WHERE q.queue = %(queue)s::text RETURNING q.queue
)
SELECT pg_notify('tasks', queue)::text AS notified FROM resumed
