"""Sending a pack and moving the branch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO

from hub.client.answers import Pushed
from hub.client.errors import LinkRefused
from hub.client.transport import LINKS_MAX, Remote
from hub.pack.format import PackSummary


@dataclass(frozen=True, slots=True)
class Move:
    """`branch` is to go from `expected`, its head as seen (None: no branch yet), to `head`.

    `force` allows commits of the branch to be left behind; never others than those seen.
    """

    branch: str
    head: str
    expected: str | None
    force: bool = False


def send(remote: Remote, file: IO[bytes], summary: PackSummary, move: Move) -> Pushed:
    """Upload the pack in `file` unless the repository has it, and move the branch. Raises the errors of Remote."""
    for attempt in range(1, LINKS_MAX + 1):
        presigned = remote.presign(summary.mpack_id, summary.size, move.branch, move.head)
        if presigned.upload is None:
            break
        try:
            remote.upload(presigned.upload, file, summary.size)
        except LinkRefused:
            if attempt == LINKS_MAX:
                raise
        else:
            break
    return remote.push(presigned.mpack_key, move.branch, move.head, expected_head=move.expected, force=move.force)
