-- Begin the schedules that have no row yet: from now on, nothing before was missed.
INSERT INTO tasks.schedule (name, rhythm, last_nominal_at)
SELECT wanted.name, wanted.rhythm, COALESCE(%(now)s::timestamptz, clock_timestamp())
FROM unnest(%(names)s::text[], %(rhythms)s::text[]) AS wanted (name, rhythm)
ORDER BY wanted.name, wanted.rhythm
ON CONFLICT (name, rhythm) DO NOTHING
