"""Sending a pack and moving the branch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO

from hub.client.answers import Pushed
from hub.client.errors import LinkRefused, Refused, Unreachable
from hub.client.http import MIB
from hub.client.transport import LINKS_MAX, Remote
from hub.client.upload_answers import PartsToSend, UploadLink
from hub.pack.format import PackSummary

INLINE_BYTES_MAX = 64 * MIB
"""A pack that comes along with its push lies in memory, whatever the hub would take."""
TOO_LARGE = 413


@dataclass(frozen=True, slots=True)
class Move:
    """`branch` is to go from `expected`, its head as seen (None: no branch yet), to `head`.

    `force` allows commits of the branch to be left behind; never others than those seen.
    """

    branch: str
    head: str
    expected: str | None
    force: bool = False


def send(remote: Remote, file: IO[bytes], summary: PackSummary, move: Move, inline_bytes: int = 0) -> Pushed:
    """Send the pack in `file` and move the branch: in one request up to `inline_bytes`, which the hub has told.

    Of a larger pack, what the hub lacks is uploaded first. It is asked again what is missing until nothing is: so an
    interrupted upload goes on where it broke off. Raises the errors of Remote.
    """
    if summary.size <= min(inline_bytes, INLINE_BYTES_MAX):
        file.seek(0)
        try:
            return remote.push_inline(
                summary.mpack_id, file.read(), move.branch, move.head, expected_head=move.expected, force=move.force
            )
        except Refused as error:
            # A proxy in front of the hub may take less than the hub itself: then the store takes the pack.
            if error.status != TOO_LARGE:
                raise
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
