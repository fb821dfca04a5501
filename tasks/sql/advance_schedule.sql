-- Every nominal time up to this one has been dealt with.
UPDATE tasks.schedule
SET last_nominal_at = %(last)s::timestamptz, skipped = skipped + %(skipped)s::bigint
WHERE name = %(name)s::text AND rhythm = %(rhythm)s::text
