-- Workers that died without a word, long ago. Locked rows are skipped, so that two sweeps cannot deadlock.
DELETE FROM tasks.worker WHERE worker_id IN (
    SELECT worker_id FROM tasks.worker
    WHERE last_seen < COALESCE(%(now)s::timestamptz, clock_timestamp()) - make_interval(secs => %(silent)s::float8)
    FOR UPDATE SKIP LOCKED
)
