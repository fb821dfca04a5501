"""Sending a pack and moving the branch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO

from hub.client.answers import Pushed
from hub.client.errors import LinkRefused, Unreachable
from hub.client.transport import LINKS_MAX, Remote
from hub.client.upload_answers import PartsToSend, UploadLink
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
    """Upload what the hub lacks of the pack in `file`, and move the branch. Raises the errors of Remote.

    The hub is asked again what is missing until nothing is: so an interrupted upload goes on where it broke off.
    """
    refused, arrived = 0, -1
    while True:
        presigned = remote.presign(summary.mpack_id, summary.size, move.branch, move.head, move.expected)
        upload = presigned.upload
        if upload is None:
            break
        if isinstance(upload, PartsToSend):
            if upload.arrived <= arrived:
                raise Unreachable("The hub asks for parts again that it has received; try again later.")
            arrived = upload.arrived
        try:
            remote.upload(upload, file, summary.size)
        except LinkRefused:
            refused, arrived = refused + 1, -1
            if refused == LINKS_MAX:
                raise
        else:
            if isinstance(upload, UploadLink):
                break
    return remote.push(presigned.mpack_key, move.branch, move.head, expected_head=move.expected, force=move.force)
