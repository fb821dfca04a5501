-- Before the running jobs of a limit are counted: lock its gate row, in a statement of its own, so that the next
-- ones see every claim that was made under that lock. Keys of the jobs next in order, of the ready ones those that
-- this claim may take: behind others it would not come to its own. A key that somebody else counts just now is left
-- to them.
SELECT g.limit_key
FROM tasks.limit_gate AS g
WHERE g.limit_key IN (
    (SELECT j.limit_key FROM tasks.job AS j
     WHERE j.status = 'pending' AND j.lane = 'unchecked'
     ORDER BY j.priority DESC, j.created_at, j.seq LIMIT %(limit)s::bigint)
    UNION
    (SELECT j.limit_key FROM tasks.job AS j
     WHERE j.status = 'pending' AND j.lane = 'ready' AND j.gated
       AND j.task = ANY (%(tasks)s::text[])
       AND j.queue = ANY (%(queues)s::text[])
       AND NOT EXISTS (SELECT FROM tasks.queue AS q WHERE q.queue = j.queue)
     ORDER BY j.priority DESC, j.created_at, j.seq LIMIT %(limit)s::bigint))
FOR UPDATE OF g SKIP LOCKED
