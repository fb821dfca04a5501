"""The example of `packhouse up`: a small directory goes to the hub and comes back, byte for byte."""

from __future__ import annotations

import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from hub.client.cloning import clone
from hub.client.errors import Refused
from hub.client.follow import await_prebuilt
from hub.client.patience import Timing
from hub.client.progress import Silent
from hub.client.pushing import Wish, push_directory
from hub.client.transport import Remote
from hub.client.tree import read_tree
from hub.embedded.state import State
from hub.errors import Conflict

OPERATOR = "example"
REPOSITORY = "example/hello"
TIMING = Timing(wait_seconds=120)
FILES: dict[str, bytes] = {
    "README.md": b"# Hello\n\nA directory like any other: pushed to the hub, and cloned from it.\n",
    "docs/Grüße.txt": "Grüße aus dem Verzeichnis.\n".encode(),
    "data/empty": b"",
    "data/every-byte.bin": bytes(range(256)) * 64,
    "data/copy-of-every-byte.bin": bytes(range(256)) * 64,
    "src/hello.py": b'print("Hello, hub")\n',
}


class ExampleFailed(RuntimeError):
    """The example did not come back as it went; the message says where it ended."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the example showed. Sizes are bytes, times are seconds."""

    commit_id: str
    files: int
    size: int
    pushed: bool
    push_seconds: float
    clone_seconds: float


def _knows(url: str, token: str) -> bool:
    """Say whether the hub has the repository and lets the token in."""
    with Remote(url, token, timing=TIMING) as remote:
        try:
            remote.refs()
        except Refused as error:
            if error.status in {401, 403, 404}:
                return False
            raise
    return True


def operator_token(state: State, database_url: str, url: str) -> str:
    """Return a token that may write to the example at `url`, making user, token and repository the first time.

    Raises ExampleFailed when the hub does not take the token that it was given.
    """
    kept = state.get("operator_token")
    if kept is not None and _knows(url, kept):
        return str(kept)
    token = _make_operator(database_url)
    if not _knows(url, token):
        raise ExampleFailed(f"the hub does not know {url}, or refuses the token that was made for it")
    state.put("operator_token", token)
    return token


def _make_operator(database_url: str) -> str:
    """Make the user and the repository, unless an earlier run with another state directory has; return a new token."""
    from hub.accounts import create_principal, create_repository, create_token  # Flask: not for a second run
    from hub.models.base import driver_url

    engine = create_engine(driver_url(database_url))
    try:
        with suppress(Conflict), Session(engine) as session, session.begin():
            create_principal(session, OPERATOR, is_superuser=True)
        with suppress(Conflict), Session(engine) as session, session.begin():
            create_repository(session, REPOSITORY)
        with Session(engine) as session, session.begin():
            return create_token(session, OPERATOR, label="packhouse up")[1]
    finally:
        engine.dispose()


def run_example(folder: Path, url: str, token: str) -> Outcome:
    """Write the example below `folder`, push it, wait until it is indexed and prebuilt, clone it, compare.

    Raises ExampleFailed when what comes back differs, and the client's own errors.
    """
    source = folder / "hello"
    for path, content in FILES.items():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_bytes(content)
    began = time.monotonic()
    with Remote(url, token, timing=TIMING) as remote, tempfile.TemporaryDirectory(dir=folder) as scratch:
        pushed = push_directory(remote, Wish(source, "The example of packhouse up"), Silent())
        if pushed.push_id is not None:
            await_prebuilt(remote, pushed.push_id, Silent())
        push_seconds = time.monotonic() - began
        began = time.monotonic()
        cloned = clone(remote, Path(scratch) / "hello", Silent())
        compare(source, cloned.directory)
    if cloned.head != pushed.commit_id:
        raise ExampleFailed(f"commit {pushed.commit_id} was pushed, {cloned.head} came back")
    return Outcome(
        commit_id=pushed.commit_id,
        files=cloned.files,
        size=sum(len(content) for content in FILES.values()),
        pushed=not pushed.up_to_date,
        push_seconds=push_seconds,
        clone_seconds=time.monotonic() - began,
    )


def compare(source: Path, copy: Path) -> None:
    """Raise ExampleFailed unless both directories hold the same files with the same bytes."""
    here, there = ({file.path: file.location for file in read_tree(place).files} for place in (source, copy))
    if set(here) != set(there):
        raise ExampleFailed(f"only on one side: {', '.join(sorted(set(here) ^ set(there)))}")
    different = [path for path in sorted(here) if here[path].read_bytes() != there[path].read_bytes()]
    if different:
        raise ExampleFailed(f"not the same bytes: {', '.join(different)}")
