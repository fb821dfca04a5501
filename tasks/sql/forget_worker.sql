-- A worker says goodbye.
DELETE FROM tasks.worker WHERE worker_id = %(worker_id)s::text
