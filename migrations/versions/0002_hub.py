"""The hub's tables: principals, repositories, history, packs, the index and the clone cache.

Revision ID: 0002
"""

from alembic import op

revision = "0002"
down_revision = None
branch_labels = ("hub",)
depends_on = "0001_tasks"

UP = """
CREATE SCHEMA hub;

CREATE TABLE hub.principal (
    principal_id uuid PRIMARY KEY,
    name text NOT NULL UNIQUE CHECK (name ~ '^[a-z0-9]([a-z0-9-]{0,37}[a-z0-9])?$'),
    is_superuser boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- A token's text is shown once and never stored: what is kept can't be used to sign in.
CREATE TABLE hub.token (
    token_id uuid PRIMARY KEY,
    principal_id uuid NOT NULL REFERENCES hub.principal ON DELETE CASCADE,
    token_hash bytea NOT NULL UNIQUE CHECK (octet_length(token_hash) = 32),
    label text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    revoked_at timestamptz
);
CREATE INDEX token_principal ON hub.token (principal_id);

CREATE TABLE hub.repository (
    repository_id uuid PRIMARY KEY,
    owner_id uuid NOT NULL REFERENCES hub.principal,
    slug text NOT NULL CHECK (slug ~ '^[a-z0-9]([a-z0-9._-]{0,98}[a-z0-9])?$'),
    visibility text NOT NULL CHECK (visibility IN ('public', 'private')),
    default_branch text CHECK (position('/' IN default_branch) = 0),
    muse_repo_id text,
    domain text NOT NULL DEFAULT 'code',
    created_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (owner_id, slug)
);

CREATE TABLE hub.membership (
    repository_id uuid NOT NULL REFERENCES hub.repository ON DELETE CASCADE,
    principal_id uuid NOT NULL REFERENCES hub.principal ON DELETE CASCADE,
    role text NOT NULL CHECK (role IN ('read', 'write', 'admin')),
    PRIMARY KEY (repository_id, principal_id)
);
CREATE INDEX membership_principal ON hub.membership (principal_id);

-- manifest: hub.records.encode_manifest; created_at: the client's own text, in no hash.
CREATE TABLE hub.snapshot (
    repository_id uuid NOT NULL REFERENCES hub.repository ON DELETE CASCADE,
    snapshot_id bytea NOT NULL CHECK (octet_length(snapshot_id) = 32),
    manifest bytea NOT NULL,
    created_at text NOT NULL,
    PRIMARY KEY (repository_id, snapshot_id)
);
ALTER TABLE hub.snapshot ALTER COLUMN manifest SET STORAGE EXTERNAL;

-- record: the msgpack map as received (JSONB would refuse \\u0000 and change numbers).
-- generation: 0 for a root, else 1 + the greatest of the parents; an ancestor's is always smaller.
CREATE TABLE hub.commit (
    repository_id uuid NOT NULL,
    commit_id bytea NOT NULL CHECK (octet_length(commit_id) = 32),
    snapshot_id bytea NOT NULL,
    parent_commit_id bytea,
    parent2_commit_id bytea,
    generation integer NOT NULL CHECK (generation >= 0),
    author text NOT NULL,
    message text NOT NULL,
    committed_at timestamptz NOT NULL,
    record bytea NOT NULL,
    PRIMARY KEY (repository_id, commit_id),
    FOREIGN KEY (repository_id, snapshot_id) REFERENCES hub.snapshot ON DELETE CASCADE,
    FOREIGN KEY (repository_id, parent_commit_id) REFERENCES hub.commit ON DELETE CASCADE,
    FOREIGN KEY (repository_id, parent2_commit_id) REFERENCES hub.commit ON DELETE CASCADE,
    CHECK ((generation = 0) = (parent_commit_id IS NULL AND parent2_commit_id IS NULL))
);
CREATE INDEX commit_parent ON hub.commit (repository_id, parent_commit_id);
CREATE INDEX commit_parent2 ON hub.commit (repository_id, parent2_commit_id) WHERE parent2_commit_id IS NOT NULL;
CREATE INDEX commit_snapshot ON hub.commit (repository_id, snapshot_id);

CREATE TABLE hub.branch (
    repository_id uuid NOT NULL REFERENCES hub.repository ON DELETE CASCADE,
    name text NOT NULL,
    head_commit_id bytea NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (repository_id, name),
    FOREIGN KEY (repository_id, head_commit_id) REFERENCES hub.commit
);

-- The log of pushes: who moved what from where to where, and which jobs follow from it.
CREATE TABLE hub.push (
    push_id uuid PRIMARY KEY,
    repository_id uuid NOT NULL REFERENCES hub.repository ON DELETE CASCADE,
    principal_id uuid NOT NULL REFERENCES hub.principal,
    branch text NOT NULL,
    old_head_commit_id bytea,
    new_head_commit_id bytea NOT NULL,
    forced boolean NOT NULL,
    mpack_ids bytea[] NOT NULL,
    job_ids uuid[] NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX push_repository ON hub.push (repository_id, created_at);

-- staged: uploaded, adopted by no push yet; live: part of the repository; quarantined: its stored bytes are wrong.
-- object_ids: what the pack holds, until hub.mpack_index says it.
CREATE TABLE hub.mpack (
    repository_id uuid NOT NULL REFERENCES hub.repository ON DELETE CASCADE,
    mpack_id bytea NOT NULL CHECK (octet_length(mpack_id) = 32),
    state text NOT NULL CHECK (state IN ('staged', 'live', 'quarantined')),
    size bigint NOT NULL CHECK (size > 0),
    object_ids bytea[],
    created_at timestamptz NOT NULL DEFAULT now(),
    indexed_at timestamptz,
    PRIMARY KEY (repository_id, mpack_id),
    CHECK ((indexed_at IS NULL) = (object_ids IS NOT NULL)),
    CHECK (indexed_at IS NULL OR state <> 'staged')
);
CREATE INDEX mpack_unindexed ON hub.mpack (repository_id) WHERE indexed_at IS NULL;

-- The compressed blocks of each indexed pack; entries: how many entities lie in the block.
CREATE TABLE hub.mpack_block (
    repository_id uuid NOT NULL,
    mpack_id bytea NOT NULL,
    block integer NOT NULL,
    stored_offset bigint NOT NULL,
    stored_length bigint NOT NULL,
    raw_length bigint NOT NULL,
    codec smallint NOT NULL,
    checksum bigint NOT NULL,
    entries integer NOT NULL,
    PRIMARY KEY (repository_id, mpack_id, block),
    FOREIGN KEY (repository_id, mpack_id) REFERENCES hub.mpack ON DELETE CASCADE
);

-- Where each entity lies: in which pack, in which block of it, where in the block's raw bytes.
CREATE TABLE hub.mpack_index (
    repository_id uuid NOT NULL,
    kind smallint NOT NULL CHECK (kind IN (1, 2, 3)),
    entity_id bytea NOT NULL,
    mpack_id bytea NOT NULL,
    block integer NOT NULL,
    raw_offset bigint NOT NULL,
    raw_length bigint NOT NULL,
    PRIMARY KEY (repository_id, kind, entity_id, mpack_id),
    FOREIGN KEY (repository_id, mpack_id, block) REFERENCES hub.mpack_block ON DELETE CASCADE
);
CREATE INDEX mpack_index_block ON hub.mpack_index (repository_id, mpack_id, block);

-- Single objects whose upload was asked for. Who has the URL can send other bytes: they count once they are hashed.
CREATE TABLE hub.presigned_object (
    repository_id uuid NOT NULL REFERENCES hub.repository ON DELETE CASCADE,
    object_id bytea NOT NULL CHECK (octet_length(object_id) = 32),
    presigned_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (repository_id, object_id)
);

-- A client's label of a commit. Immutable; one label may sit on many commits, tag_id tells them apart.
CREATE TABLE hub.tag (
    repository_id uuid NOT NULL REFERENCES hub.repository ON DELETE CASCADE,
    tag_id text NOT NULL,
    commit_id bytea NOT NULL,
    tag text NOT NULL,
    created_at text NOT NULL,
    PRIMARY KEY (repository_id, tag_id),
    FOREIGN KEY (repository_id, commit_id) REFERENCES hub.commit
);

-- A release; record: the client's own map as it was sent, in msgpack.
CREATE TABLE hub.release (
    repository_id uuid NOT NULL REFERENCES hub.repository ON DELETE CASCADE,
    tag text NOT NULL,
    release_id text NOT NULL,
    channel text NOT NULL CHECK (channel IN ('stable', 'beta', 'alpha', 'nightly')),
    is_draft boolean NOT NULL,
    commit_id bytea NOT NULL,
    record bytea NOT NULL,
    released_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (repository_id, tag),
    UNIQUE (repository_id, release_id),
    FOREIGN KEY (repository_id, commit_id) REFERENCES hub.commit
);

-- One pack for all live tips, a row per tip; a clone hits when all its tips name the same pack.
CREATE TABLE hub.fetch_mpack_cache (
    repository_id uuid NOT NULL REFERENCES hub.repository ON DELETE CASCADE,
    tip_commit_id bytea NOT NULL,
    mpack_id bytea NOT NULL,
    size bigint NOT NULL,
    built_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (repository_id, tip_commit_id)
);
"""


def upgrade() -> None:
    """Create the schema `hub`."""
    op.execute(UP)


def downgrade() -> None:
    """Drop the schema `hub` with all its data; for development."""
    op.execute("DROP SCHEMA hub CASCADE")
