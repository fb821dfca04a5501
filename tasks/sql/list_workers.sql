-- Every worker that has registered.
SELECT worker_id, host, pid, queues, tasks, version, started_at, last_seen
FROM tasks.worker
ORDER BY started_at, worker_id
