"""Which files of a directory a push leaves out: `.museignore` and `.gitignore`, by git's rules."""

from __future__ import annotations

import json
import os
import stat
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from hub.client.errors import BadInput

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

RULES_BYTES_MAX = 1024 * 1024
DOMAIN_DEFAULT = "code"
"""The part of a `.museignore` that holds where no `.muse/repo.json` names another domain."""


class Ignores:
    """The rules that hold in one directory: those of the directories above, then its own.

    The last rule that matches decides, one in a deeper directory before one above it, and `.museignore`, which is
    read at the root only, before all of them.
    """

    def __init__(self, levels: tuple[tuple[str, GitIgnoreSpec], ...] = (), muse: GitIgnoreSpec | None = None) -> None:
        """Hold the rules of `levels` (prefix of the paths, rules), deepest last."""
        self._levels = levels
        self._muse = muse

    @classmethod
    def at_root(cls, root: Path) -> Ignores:
        """Read the rules of the root directory. Raises BadInput for rules that cannot be read."""
        return cls((), _muse_rules(root)).below("", root)

    def below(self, prefix: str, directory: Path) -> Ignores:
        """Add the rules of the directory whose paths begin with `prefix`. Raises BadInput."""
        text = _read(directory / ".gitignore", f"{prefix}.gitignore")
        if text is None:
            return self
        rules = _parsed(text.splitlines(), f"{prefix}.gitignore")
        return Ignores((*self._levels, (prefix, rules)), self._muse)

    def ignores(self, path: str, *, is_directory: bool) -> bool:
        """Whether a push leaves out `path`, whose parent directories are not left out."""
        shown = f"{path}/" if is_directory else path
        levels = [*self._levels, *([("", self._muse)] if self._muse is not None else [])]
        for prefix, rules in reversed(levels):
            decided = rules.check_file(shown[len(prefix) :]).include
            if decided is not None:
                return decided
        return False


def _muse_rules(root: Path) -> GitIgnoreSpec | None:
    """Read `.museignore`: TOML, `patterns` in `[global]` and, for the repository's domain, in `[domain.NAME]`."""
    text = _read(root / ".museignore", ".museignore")
    if text is None:
        return None
    try:
        value = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        raise BadInput(".museignore cannot be read: it should be TOML with patterns = […] under [global].") from None
    domains = value.get("domain")
    sections = (value.get("global"), domains.get(_domain(root)) if isinstance(domains, dict) else None)
    patterns: list[str] = []
    for section in sections:
        listed = section.get("patterns", []) if isinstance(section, dict) else []
        if not isinstance(listed, list) or not all(isinstance(item, str) for item in listed):
            raise BadInput(".museignore cannot be read: patterns should be a list of texts.")
        patterns += map(_anywhere, listed)
    return _parsed(patterns, ".museignore")


def _anywhere(pattern: str) -> str:
    """Translate one difference: a pattern with a slash inside matches at any depth, not at the root only."""
    negation, bare = ("!", pattern[1:]) if pattern.startswith("!") else ("", pattern)
    inside = bare.rstrip("/")
    return f"{negation}**/{bare}" if "/" in inside and not bare.startswith(("/", "**/")) else pattern


def _domain(root: Path) -> str:
    text = _read(root / ".muse" / "repo.json", ".muse/repo.json")
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        value = None
    domain = value.get("domain") if isinstance(value, dict) else None
    return domain if isinstance(domain, str) else DOMAIN_DEFAULT


def _parsed(lines: Iterable[str], shown: str) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec  # a clone imports this module, too, and reads no rules

    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError:
        raise BadInput(f"«{shown}» has a pattern that cannot be read.") from None


def _read(location: Path, shown: str) -> str | None:
    """Read a file of rules; None when there is no regular file, as git does not follow links there either."""
    try:
        descriptor = os.open(location, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        raw = file.read(RULES_BYTES_MAX + 1)
    if len(raw) > RULES_BYTES_MAX:
        raise BadInput(f"«{shown}» is longer than {RULES_BYTES_MAX} bytes.")
    return raw.decode("utf-8", "replace")
