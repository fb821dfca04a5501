-- Take the schedule until the transaction ends; no row: another scheduler has it.
SELECT s.name, s.rhythm, s.last_nominal_at, s.skipped, COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
FROM tasks.schedule AS s
WHERE s.name = %(name)s::text AND s.rhythm = %(rhythm)s::text
FOR NO KEY UPDATE SKIP LOCKED
