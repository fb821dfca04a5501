"""What a working directory knows about where it came from: `.packhouse/config.json`."""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hub.client.address import parse_address
from hub.client.errors import BadInput
from hub.records import Invalid, check_branch, check_id

STATE = ".packhouse"
CONFIG_BYTES_MAX = 64 * 1024


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
    try:
        with config_path(directory).open("rb") as file:
            text = file.read(CONFIG_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"{STATE}/config.json cannot be read: {error.strerror}.") from None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if len(text) > CONFIG_BYTES_MAX or not isinstance(value, dict):
        raise BadInput(f"{STATE}/config.json is damaged: it should be a JSON object with url, branch and head.")
    return _checked(value)


def save(directory: Path, workdir: Workdir) -> None:
    """Write the directory's configuration; a reader sees the old one or the new one, nothing between."""
    target = config_path(directory)
    target.parent.mkdir(exist_ok=True)
    text = json.dumps(asdict(workdir), ensure_ascii=False, indent=2) + "\n"
    fresh = target.with_name(f"config.{secrets.token_hex(8)}.tmp")
    try:
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(target)
    finally:
        fresh.unlink(missing_ok=True)


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
