-- The parents of jobs that were enqueued in this transaction.
INSERT INTO tasks.dependency (child_id, parent_id, position)
SELECT d.child_id, d.parent_id, d.position
FROM unnest(%(children)s::uuid[], %(parents)s::uuid[], %(positions)s::int[]) AS d (child_id, parent_id, position)
RETURNING position
