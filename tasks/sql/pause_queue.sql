-- No job of the queue is claimed from here on; those that run go on. The first pause counts.
INSERT INTO tasks.queue AS q (queue, paused_at, reason)
SELECT %(queue)s::text, COALESCE(%(now)s::timestamptz, clock_timestamp()), %(reason)s::text
ON CONFLICT (queue) DO UPDATE SET reason = EXCLUDED.reason
RETURNING q.paused_at
