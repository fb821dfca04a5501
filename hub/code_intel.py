"""`intel.code`: the languages and sizes of the files of each branch's head, by the files' names."""

from __future__ import annotations

from functools import lru_cache
from heapq import nsmallest
from typing import Any
from uuid import UUID

from pygments.lexers import find_lexer_class_for_filename
from sqlalchemy.orm import Session

from hub.errors import FetchNotIndexed
from hub.last_commits import manifest_of
from hub.models.facts import CodeIntel, keep_only, known_tips, object_sizes
from hub.records import EMPTY_OBJECT_ID

LARGEST = 10
LANGUAGES = 100
"""Languages that are told, the largest first."""
OTHER = "Other"


def code_intel(session: Session, repository_id: UUID, tips: list[str]) -> dict[str, int]:
    """Measure those of these heads that are not measured yet; how many. Forgets former heads.

    Raises FetchNotIndexed.
    """
    new = sorted(set(tips) - known_tips(session, CodeIntel, repository_id))
    for tip in new:
        statistics = measure(session, repository_id, manifest_of(session, repository_id, tip))
        session.add(CodeIntel(repository_id=repository_id, commit_id=tip, statistics=statistics))
    keep_only(session, CodeIntel, repository_id, tips)
    return {"heads": len(tips), "measured": len(new)}


def measure(session: Session, repository_id: UUID, manifest: dict[str, str]) -> dict[str, Any]:
    """`files`, `bytes`, `languages` (`name`, `files`, `bytes`; largest first), `largest` files (`path`, `bytes`)."""
    wanted = set(manifest.values()) - {EMPTY_OBJECT_ID}
    sizes = object_sizes(session, repository_id, sorted(wanted))
    if len(sizes) < len(wanted):
        raise FetchNotIndexed(len(wanted) - len(sizes))
    languages: dict[str, list[int]] = {}
    for path, object_id in manifest.items():
        counted = languages.setdefault(language_of(path), [0, 0])
        counted[0] += 1
        counted[1] += sizes.get(object_id, 0)
    ordered = sorted(languages.items(), key=lambda item: (-item[1][1], -item[1][0], item[0]))
    largest = nsmallest(LARGEST, ((-sizes.get(object_id, 0), path) for path, object_id in manifest.items()))
    return {
        "files": len(manifest),
        "bytes": sum(size for _, size in languages.values()),
        "languages": [{"name": name, "files": files, "bytes": size} for name, (files, size) in ordered[:LANGUAGES]],
        "largest": [{"path": path, "bytes": -size} for size, path in largest],
    }


def language_of(path: str) -> str:
    """The language that a file's name tells; OTHER when it tells none."""
    name = path.rpartition("/")[2]
    stem, dot, ending = name.rpartition(".")
    return _language(f"x.{ending}" if dot and stem and name.count(".") == 1 else name)


@lru_cache(maxsize=10_000)
def _language(name: str) -> str:
    lexer = find_lexer_class_for_filename(name)
    return OTHER if lexer is None else str(lexer.name)
