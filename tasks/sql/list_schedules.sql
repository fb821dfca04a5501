-- The rows of the schedules named, with the database's clock.
SELECT s.name, s.rhythm, s.last_nominal_at, s.skipped, COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
FROM tasks.schedule AS s
JOIN unnest(%(names)s::text[], %(rhythms)s::text[]) AS wanted (name, rhythm) USING (name, rhythm)
ORDER BY s.name
