"""What a working directory knows about where it came from, in its directory `.packhouse`.

`config.json` has the repository, the branch and the commit that the files were made from, `heads.json` the
branches as they were when the hub was last asked, `packs/` what has been received, `pulling.json` the commit of
a pull that was interrupted.
"""

from __future__ import annotations

import fcntl
import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hub.client.address import parse_address
from hub.client.errors import BadInput, LocalConflict
from hub.records import Invalid, check_branch, check_id

STATE = ".packhouse"
STATE_FILES = ("heads.json", "config.json")
"""What is written anew as a whole; a directory is a working directory once the last of them is there."""
CONFIG_BYTES_MAX = 64 * 1024
HEADS_BYTES_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Workdir:
    """The repository at `url`; the files are those of `branch` at the commit `head` (None: no commit yet)."""

    url: str
    branch: str
    head: str | None


def find_root(start: Path) -> Path | None:
    """Return `start` or the nearest directory above it that is a working directory; None without one."""
    for directory in (start, *start.parents):
        if config_path(directory).is_file():
            return directory
    return None


def load(directory: Path) -> Workdir | None:
    """Read the directory's configuration, None without one. Raises BadInput for one that is damaged."""
    value = read_state(directory, "config.json", CONFIG_BYTES_MAX)
    return None if value is None else _checked(value)


def opened(directory: Path) -> Workdir:
    """Read the directory's configuration. Raises BadInput also when there is none."""
    known = load(directory)
    if known is None:
        raise BadInput(f"«{directory}» was not cloned or pushed before: it has no {STATE}/config.json.")
    return known


def save(directory: Path, workdir: Workdir) -> None:
    """Write the directory's configuration; a reader sees the old one or the new one, nothing between."""
    write_state(directory, "config.json", asdict(workdir))


def load_heads(directory: Path) -> dict[str, str]:
    """Read the branches and their heads as the hub last told them; none when it never did."""
    value = read_state(directory, "heads.json", HEADS_BYTES_MAX) or {}
    try:
        return {check_branch(name): check_id(head, "head") for name, head in value.items()}
    except Invalid as error:
        raise BadInput(f"{STATE}/heads.json is damaged: {error.sentence}.") from None


def save_heads(directory: Path, heads: Mapping[str, str]) -> None:
    """Write the branches and their heads."""
    write_state(directory, "heads.json", dict(heads))


def load_pending(directory: Path) -> str | None:
    """Read the commit of a pull that has begun to change files and not ended; None without one."""
    value = read_state(directory, "pulling.json", CONFIG_BYTES_MAX)
    try:
        return None if value is None else check_id(value.get("head"), "head")
    except Invalid as error:
        raise BadInput(f"{STATE}/pulling.json is damaged: {error.sentence}.") from None


def save_pending(directory: Path, head: str | None) -> None:
    """Note that a pull of `head` begins to change files; None: it has ended."""
    if head is None:
        (directory / STATE / "pulling.json").unlink(missing_ok=True)
    else:
        write_state(directory, "pulling.json", {"head": head})


def read_state(directory: Path, name: str, bytes_max: int) -> dict[str, Any] | None:
    """Read the JSON object in `.packhouse/NAME`, None without one. Raises BadInput for a damaged one."""
    try:
        with (directory / STATE / name).open("rb") as file:
            text = file.read(bytes_max + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"{STATE}/{name} cannot be read: {error.strerror}.") from None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if len(text) > bytes_max or not isinstance(value, dict):
        raise BadInput(f"{STATE}/{name} is damaged: it should be a JSON object.")
    return value


def write_state(directory: Path, name: str, value: Mapping[str, Any]) -> None:
    """Write `.packhouse/NAME`; a reader sees the old one or the new one, nothing between."""
    target = directory / STATE / name
    target.parent.mkdir(exist_ok=True)
    fresh = target.with_name(f"{name}.{secrets.token_hex(8)}.tmp")
    try:
        fresh.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
        fresh.replace(target)
    finally:
        fresh.unlink(missing_ok=True)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keep other commands out of the working directory. Raises LocalConflict while one is at work in it.

    A directory that is none yet has nothing to protect.
    """
    if not (directory / STATE).is_dir():
        yield
        return
    try:
        file = (directory / STATE / "lock").open("ab")
    except OSError as error:
        raise LocalConflict(f"{STATE} cannot be written: {error.strerror}.") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LocalConflict("Another packhouse command is at work in this directory; wait for its end.") from None
        yield


def config_path(directory: Path) -> Path:
    """Return where the configuration of `directory` is kept."""
    return directory / STATE / "config.json"


def pack_path(directory: Path, mpack_id: str) -> Path:
    """Return where a received pack is kept."""
    return directory / STATE / "packs" / f"{mpack_id}.mpack"


def _checked(value: dict[str, Any]) -> Workdir:
    url, head = value.get("url"), value.get("head")
    if not isinstance(url, str):
        raise BadInput(f"{STATE}/config.json is damaged: url should be a text.")
    try:
        branch = check_branch(value.get("branch"))
        known = None if head is None else check_id(head, "head")
    except Invalid as error:
        raise BadInput(f"{STATE}/config.json is damaged: {error.sentence}.") from None
    return Workdir(parse_address(url).url, branch, known)
