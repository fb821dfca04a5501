-- Before the running jobs of a limit are counted: lock its gate row, in a statement of its own, so that the next
-- ones see every claim that was made under that lock. Keys of the jobs next in order; a key that somebody else
-- counts just now is left to them.
SELECT g.limit_key
FROM tasks.limit_gate AS g
WHERE g.limit_key IN (
    (SELECT j.limit_key FROM tasks.job AS j
     WHERE j.status = 'pending' AND j.lane = 'unchecked'
     ORDER BY j.priority DESC, j.created_at, j.seq LIMIT %(limit)s::bigint)
    UNION
    (SELECT j.limit_key FROM tasks.job AS j
     WHERE j.status = 'pending' AND j.lane = 'ready' AND j.gated
     ORDER BY j.priority DESC, j.created_at, j.seq LIMIT %(limit)s::bigint))
FOR UPDATE OF g SKIP LOCKED
