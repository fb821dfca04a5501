-- Before the waiting jobs of a limit are freed: whoever counts the key just now, and may park a job by it, has
-- committed when this returns. In the order of the keys, so that no two wait for each other.
SELECT g.limit_key
FROM tasks.limit_gate AS g
WHERE g.limit_key = ANY (%(keys)s::text[])
ORDER BY g.limit_key
FOR UPDATE OF g
