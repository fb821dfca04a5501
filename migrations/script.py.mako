"""${message}."""

from __future__ import annotations

from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def upgrade() -> None:
    """Forward."""
    ${upgrades if upgrades else "op.execute(\"\")"}


def downgrade() -> None:
    """Back, for development only."""
    ${downgrades if downgrades else "op.execute(\"\")"}
