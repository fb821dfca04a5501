"""The queue: its tables, its indexes, and the predicates that several statements share.

A long file: one schema, read as a whole.

The table refuses nonsense: what a CHECK can say, no caller (psql included) can get wrong. Every CHECK is
written so that a NULL makes it false, not unknown: an unknown CHECK passes.
"""

from __future__ import annotations

from alembic import op

revision = "0001_tasks"
down_revision = None
branch_labels = ("tasks",)
depends_on = None

JOB = """
CREATE TABLE tasks.job (
    job_id            uuid PRIMARY KEY,
    seq               bigint GENERATED ALWAYS AS IDENTITY,
    task              text NOT NULL,
    queue             text NOT NULL DEFAULT 'default',
    scope             text NOT NULL DEFAULT '',
    payload           jsonb NOT NULL,
    priority          smallint NOT NULL DEFAULT 0,
    status            text NOT NULL DEFAULT 'pending',
    after_tasks       text[] NOT NULL DEFAULT '{}',
    created_at        timestamptz NOT NULL,
    available_at      timestamptz NOT NULL,
    lease_seconds     double precision NOT NULL,
    attempts_max      integer NOT NULL,
    attempt_count     integer NOT NULL DEFAULT 0,
    claim_count       integer NOT NULL DEFAULT 0,
    postpones_max     integer NOT NULL,
    postpone_count    integer NOT NULL DEFAULT 0,
    claim_token       uuid,
    claimed_by        text,
    claimed_at        timestamptz,
    heartbeat_at      timestamptz,
    lease_expires_at  timestamptz,
    started_at        timestamptz,
    finished_at       timestamptz,
    result            jsonb,
    last_error_code   text,
    last_error        text,
    last_error_at     timestamptz,
    dedup_key         text,
    dedup_mode        text,
    coalesced         integer NOT NULL DEFAULT 0,
    coalesced_at      timestamptz,
    cancel_reason     text,
    superseded_by     uuid,
    progress          jsonb,
    expires_at        timestamptz,
    limit_key         text,
    limit_max         integer,
    parent_count      integer NOT NULL DEFAULT 0,
    on_parent_failure text NOT NULL DEFAULT 'cancel',
    pass_results      text NOT NULL DEFAULT 'none',
    -- Hints that keep the claim cheap. They say where a pending job was seen last, never whether it may run: that
    -- is for the predicates of the claim. ready: in the claim's index; later: was not due; unchecked: has gates
    -- that nobody has looked at; parked: found shut, by the job `parked_on` or, without one, by its limit.
    lane              text NOT NULL DEFAULT 'ready',
    parked_on         uuid,
    gated             boolean NOT NULL DEFAULT false,

    CONSTRAINT job_status_known CHECK (
        status IN ('pending', 'running', 'succeeded', 'failed', 'cancelled', 'quarantined')),
    CONSTRAINT job_claim_iff_running CHECK (
        num_nonnulls(claim_token, claimed_by, claimed_at, heartbeat_at, lease_expires_at)
        = CASE WHEN status = 'running' THEN 5 ELSE 0 END),
    CONSTRAINT job_running_has_started CHECK (status <> 'running' OR started_at IS NOT NULL),
    CONSTRAINT job_finished_iff_terminal CHECK (
        (finished_at IS NOT NULL) = (status IN ('succeeded', 'failed', 'cancelled', 'quarantined'))),
    CONSTRAINT job_finished_after_started CHECK (
        finished_at IS NULL OR started_at IS NULL OR finished_at >= started_at),
    CONSTRAINT job_budget CHECK (attempt_count BETWEEN 0 AND attempts_max AND attempts_max >= 1),
    CONSTRAINT job_postpones CHECK (postpone_count BETWEEN 0 AND postpones_max),
    CONSTRAINT job_claims_cover_attempts CHECK (claim_count >= attempt_count),
    CONSTRAINT job_lease_positive CHECK (lease_seconds > 0),
    CONSTRAINT job_result_only_on_success CHECK (result IS NULL OR status = 'succeeded'),
    CONSTRAINT job_error_whole CHECK (num_nonnulls(last_error_code, last_error, last_error_at) IN (0, 3)),
    CONSTRAINT job_dedup_whole CHECK (num_nonnulls(dedup_key, dedup_mode) IN (0, 2)),
    CONSTRAINT job_dedup_mode_known CHECK (dedup_mode IS NULL OR dedup_mode IN ('join', 'once', 'reject')),
    CONSTRAINT job_coalesced CHECK (coalesced >= 0 AND (coalesced_at IS NOT NULL) = (coalesced > 0)),
    CONSTRAINT job_reason_iff_cancelled CHECK ((cancel_reason IS NOT NULL) = (status = 'cancelled')),
    CONSTRAINT job_superseded_names_its_heir CHECK (
        (superseded_by IS NOT NULL) = (cancel_reason IS NOT NULL AND cancel_reason = 'superseded')),
    CONSTRAINT job_limit_whole CHECK (num_nonnulls(limit_key, limit_max) IN (0, 2)),
    CONSTRAINT job_limit_positive CHECK (limit_max IS NULL OR limit_max >= 1),
    CONSTRAINT job_parents CHECK (parent_count >= 0),
    CONSTRAINT job_parent_policy_known CHECK (on_parent_failure IN ('cancel', 'run', 'stay')),
    CONSTRAINT job_pass_results_known CHECK (pass_results IN ('none', 'first', 'list')),
    CONSTRAINT job_gated CHECK (gated = (after_tasks <> '{}' OR parent_count > 0 OR limit_key IS NOT NULL)),
    CONSTRAINT job_lane_known CHECK (lane IN ('ready', 'later', 'unchecked', 'parked')),
    CONSTRAINT job_lane_is_of_pending CHECK (status = 'pending' OR lane = 'ready'),
    CONSTRAINT job_parked_on_is_of_parked CHECK (parked_on IS NULL OR lane = 'parked')
) WITH (
    -- Rows are rewritten a few times in a short life; leave room on the page, and vacuum early: a claim has
    -- to walk over every dead index entry that is older than the oldest waiting job.
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.05
)
"""

# No foreign key to tasks.job: it costs about a tenth of a claim (a share lock on the job per attempt), and
# one statement writes both rows, so that neither can exist without the other.
ATTEMPT = """
CREATE TABLE tasks.attempt (
    claim_token  uuid PRIMARY KEY,
    job_id       uuid NOT NULL,
    number       integer NOT NULL,
    worker       text NOT NULL,
    claimed_at   timestamptz NOT NULL,
    ended_at     timestamptz,
    result       text,
    error_code   text,
    error        text,

    CONSTRAINT attempt_number_once UNIQUE (job_id, number),
    CONSTRAINT attempt_number_from_one CHECK (number >= 1),
    CONSTRAINT attempt_result_known CHECK (result IS NULL OR result IN (
        'SUCCEEDED', 'FAILED', 'ABANDONED', 'RELEASED', 'CANCELLED', 'QUARANTINED')),
    CONSTRAINT attempt_ended_iff_result CHECK ((ended_at IS NOT NULL) = (result IS NOT NULL)),
    CONSTRAINT attempt_ended_after_claimed CHECK (ended_at IS NULL OR ended_at >= claimed_at),
    CONSTRAINT attempt_error_whole CHECK (num_nonnulls(error_code, error) IN (0, 2)),
    CONSTRAINT attempt_error_iff_failed CHECK (
        (error_code IS NOT NULL) = (result IS NOT NULL AND result IN ('FAILED', 'QUARANTINED')))
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05)
"""

WORKER = """
CREATE TABLE tasks.worker (
    worker_id   text PRIMARY KEY,
    host        text NOT NULL,
    pid         integer NOT NULL,
    queues      text[] NOT NULL,
    tasks       text[] NOT NULL,
    version     text NOT NULL,
    started_at  timestamptz NOT NULL,
    last_seen   timestamptz NOT NULL
) WITH (fillfactor = 50)
"""

# Also without foreign keys: a child may name a parent that is gone, and then follows its policy.
DEPENDENCY = """
CREATE TABLE tasks.dependency (
    child_id   uuid NOT NULL,
    parent_id  uuid NOT NULL,
    position   integer NOT NULL,

    PRIMARY KEY (child_id, position),
    CONSTRAINT dependency_of_another CHECK (child_id <> parent_id)
)
"""

# A row is locked by whoever counts the running jobs of its key. Rows stay: removing one would race with an enqueue.
LIMIT_GATE = "CREATE TABLE tasks.limit_gate (limit_key text PRIMARY KEY)"

QUEUE = """
CREATE TABLE tasks.queue (
    queue      text PRIMARY KEY,
    paused_at  timestamptz NOT NULL,
    reason     text NOT NULL
)
"""

OPERATION = """
CREATE TABLE tasks.operation (
    job_id  uuid NOT NULL,
    seq     bigint GENERATED ALWAYS AS IDENTITY,
    at      timestamptz NOT NULL,
    action  text NOT NULL,
    reason  text NOT NULL,

    PRIMARY KEY (job_id, seq),
    CONSTRAINT operation_action_known CHECK (action IN ('cancel', 'set_aside', 'retry'))
)
"""

# The rhythm is part of the key: two versions of an application with two rhythms of one schedule do not disturb
# each other during a deploy.
SCHEDULE = """
CREATE TABLE tasks.schedule (
    name             text NOT NULL,
    rhythm           text NOT NULL,
    last_nominal_at  timestamptz NOT NULL,
    skipped          bigint NOT NULL DEFAULT 0,

    PRIMARY KEY (name, rhythm),
    CONSTRAINT schedule_skipped CHECK (skipped >= 0)
) WITH (fillfactor = 50)
"""

# The predicates of job_lease and job_blocker say «running» and «not at an end» by the columns that are set
# exactly then (see the CHECKs), not by `status`: they must not match the statements that look a job up by its
# id and say `status = 'running'` as a guard. A planner whose statistics are from a quiet moment takes a
# partial index for empty and would walk all of it once per row.
INDEXES = """
CREATE INDEX job_claim ON tasks.job (priority DESC, created_at, seq) WHERE status = 'pending' AND lane = 'ready';
CREATE INDEX job_gated ON tasks.job (priority DESC, created_at, seq)
    WHERE status = 'pending' AND lane = 'ready' AND gated;
CREATE INDEX job_unchecked ON tasks.job (priority DESC, created_at, seq)
    WHERE status = 'pending' AND lane = 'unchecked';
CREATE INDEX job_later ON tasks.job (available_at) WHERE status = 'pending' AND lane = 'later';
CREATE INDEX job_parked ON tasks.job (parked_on) WHERE parked_on IS NOT NULL;
CREATE INDEX job_limit_waiting ON tasks.job (limit_key, lane, priority DESC, created_at, seq)
    WHERE status = 'pending' AND limit_key IS NOT NULL;
CREATE INDEX job_limit_running ON tasks.job (limit_key) WHERE limit_key IS NOT NULL AND lease_expires_at IS NOT NULL;
CREATE INDEX job_expiry ON tasks.job (expires_at) WHERE status = 'pending' AND expires_at IS NOT NULL;
CREATE INDEX job_child ON tasks.job (job_id) WHERE status = 'pending' AND parent_count > 0;
CREATE INDEX job_finished ON tasks.job (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX job_lease ON tasks.job (lease_expires_at) WHERE lease_expires_at IS NOT NULL;
CREATE INDEX job_blocker ON tasks.job (scope, task) WHERE finished_at IS NULL;
CREATE UNIQUE INDEX job_pending_key ON tasks.job (task, dedup_key)
    WHERE status = 'pending' AND dedup_key IS NOT NULL;
CREATE UNIQUE INDEX job_once_key ON tasks.job (task, dedup_key) WHERE dedup_mode = 'once';
CREATE INDEX job_unwell ON tasks.job (status, job_id) WHERE status IN ('failed', 'cancelled', 'quarantined');
CREATE INDEX job_scope ON tasks.job (scope, task, job_id) WHERE scope <> '';
CREATE UNIQUE INDEX attempt_one_open ON tasks.attempt (job_id) WHERE result IS NULL;
CREATE INDEX dependency_parent ON tasks.dependency (parent_id);
"""

# The planner inlines them where they stand in FROM (one SELECT, STABLE, not STRICT), so they cost what the
# text would cost in place. They take columns, not the row: a whole-row argument would fetch the payload. No
# parameter has the name of a column: inside, the column would win.
PREDICATES = """
CREATE FUNCTION tasks.blockers(waiting_id uuid, in_scope text, gate_tasks text[])
RETURNS TABLE (job_id uuid, task text, status text, since timestamptz) LANGUAGE sql STABLE AS $$
    SELECT b.job_id, b.task, b.status, CASE WHEN b.status = 'running' THEN b.claimed_at ELSE b.created_at END
    FROM tasks.job AS b
    WHERE b.scope = in_scope
      AND b.task = ANY (gate_tasks)
      AND b.finished_at IS NULL
      AND b.job_id <> waiting_id
$$;
COMMENT ON FUNCTION tasks.blockers IS
    'The jobs that shut the gate of a job: those of its after_tasks, in its scope, pending or running';

CREATE FUNCTION tasks.unmet_parents(waiting_id uuid, policy text)
RETURNS TABLE (parent_id uuid, task text, status text, since timestamptz, "position" integer)
LANGUAGE sql STABLE AS $$
    SELECT d.parent_id, p.task, p.status, COALESCE(p.finished_at, p.claimed_at, p.created_at), d.position
    FROM tasks.dependency AS d LEFT JOIN tasks.job AS p ON p.job_id = d.parent_id
    WHERE d.child_id = waiting_id
      AND CASE
            WHEN p.job_id IS NULL THEN policy <> 'run'
            WHEN p.status = 'succeeded' THEN false
            ELSE policy <> 'run' OR p.finished_at IS NULL
          END
$$;
COMMENT ON FUNCTION tasks.unmet_parents IS
    'The parents that a job waits for; status NULL: there is no such job (any more)';

CREATE FUNCTION tasks.running_of(key text)
RETURNS TABLE (job_id uuid, task text, status text, since timestamptz) LANGUAGE sql STABLE AS $$
    SELECT r.job_id, r.task, r.status, r.claimed_at
    FROM tasks.job AS r
    WHERE r.limit_key = key
      AND r.lease_expires_at IS NOT NULL
$$;
COMMENT ON FUNCTION tasks.running_of IS
    'The running jobs of a limit: a count of open attempts, so that nothing can give a place back twice';

CREATE FUNCTION tasks.heirs(back_id uuid, of_task text, of_key text)
RETURNS TABLE (job_id uuid) LANGUAGE sql STABLE AS $$
    SELECT h.job_id
    FROM tasks.job AS h
    WHERE h.task = of_task
      AND h.dedup_key = of_key
      AND h.status = 'pending'
      AND h.job_id <> back_id
$$;
COMMENT ON FUNCTION tasks.heirs IS
    'The pending job, if any, that holds the dedup key of a job: it supersedes that job on its way back';
"""


def upgrade() -> None:
    """Create the schema."""
    op.execute("CREATE SCHEMA tasks")
    for statement in (JOB, ATTEMPT, WORKER, DEPENDENCY, LIMIT_GATE, QUEUE, OPERATION, SCHEDULE, INDEXES, PREDICATES):
        op.execute(statement)


def downgrade() -> None:
    """Drop everything; for development only."""
    op.execute("DROP SCHEMA tasks CASCADE")
