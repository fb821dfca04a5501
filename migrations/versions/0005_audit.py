"""The audit log: who did what to which repository, token and branch. It can only grow.

Revision ID: 0005_audit
"""

from alembic import op

revision = "0005_audit"
down_revision = "0004_fetch_body"
branch_labels = None
depends_on = None

UP = """
-- No foreign keys: the log outlives what it tells of. name: the principal's then; «operator» on the command line.
CREATE TABLE hub.audit (
    audit_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    happened_at timestamptz NOT NULL DEFAULT now(),
    action text NOT NULL,
    principal_id uuid,
    name text NOT NULL,
    token_id uuid,
    token_label text,
    repository_id uuid,
    address text,
    via text NOT NULL,
    details jsonb NOT NULL
);
CREATE INDEX audit_repository ON hub.audit (repository_id, audit_id);

CREATE FUNCTION hub.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'hub.% can only grow', TG_TABLE_NAME USING ERRCODE = 'insufficient_privilege';
END
$$;
CREATE TRIGGER audit_only_grows BEFORE UPDATE OR DELETE OR TRUNCATE ON hub.audit
    FOR EACH STATEMENT EXECUTE FUNCTION hub.refuse_change();
"""


def upgrade() -> None:
    """Create the table; nothing that exists is locked."""
    op.execute(UP)


def downgrade() -> None:
    """Drop the log; for development."""
    op.execute("DROP TABLE hub.audit; DROP FUNCTION hub.refuse_change()")
