"""Releases and tags of a repository, kept as the Muse client sends them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgpack
from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from hub.errors import Conflict, Invalid, Missing
from hub.manifest import check_id
from hub.models.history import generations
from hub.models.release import Release, Tag

_NUMBER = r"(?:0|[1-9][0-9]*)"
RELEASE_TAG = re.compile(
    rf"v?(?P<major>{_NUMBER})\.(?P<minor>{_NUMBER})\.(?P<patch>{_NUMBER})"
    r"(?:-(?P<pre>[0-9A-Za-z.-]+))?(?:\+(?P<build>[0-9A-Za-z.-]+))?"
)
_BAD_TEXT = re.compile("[\0\ud800-\udfff]")
CHANNELS = ("stable", "beta", "alpha", "nightly")
RECORD_BYTES = 1024 * 1024
LIST_BYTES = 32 * 1024 * 1024
"""Records in one list; the Muse client reads no answer above 64 MiB, and a changelog may have 500 entries."""
TEXT_MAX = 512
"""Characters of an id, a tag or a time; titles and bodies are bounded by the record."""


def create_release(session: Session, repository_id: UUID, record: Mapping[str, Any]) -> str:
    """Keep a release; its id.

    Raises Invalid for a tag that is no semantic version, an unknown channel or commit, or a record that is too large;
    Conflict when the tag or the id is taken.
    """
    tag = _text(record, "tag")
    match = RELEASE_TAG.fullmatch(tag)
    if match is None:
        raise Invalid("tag", "must be a semantic version, such as v1.2.3 or 1.2.3-beta.1+build.")
    _check_semver(record.get("semver"), match)
    channel = record.get("channel") or _channel_of(match["pre"])
    if channel not in CHANNELS:
        raise Invalid("channel", f"must be one of {', '.join(CHANNELS)}.")
    is_draft = record.get("is_draft", False)
    if not isinstance(is_draft, bool):
        raise Invalid("is_draft", "must be true or false.")
    commit_id = check_id(record.get("commit_id"), "commit_id")
    if commit_id not in generations(session, repository_id, [commit_id]):
        raise Invalid("commit_id", "names a commit that was not pushed here; push its branch first.")
    packed = _packed(dict(record) | {"channel": channel})
    if len(packed) > RECORD_BYTES:
        raise Invalid("release", f"has {len(packed)} bytes, allowed are {RECORD_BYTES}.")
    release_id = _text(record, "release_id")
    values = {
        "repository_id": repository_id, "tag": tag, "release_id": release_id, "channel": channel,
        "is_draft": is_draft, "commit_id": commit_id, "record": packed,
    }  # fmt: skip
    kept = session.execute(insert(Release).values(values).on_conflict_do_nothing().returning(Release.tag)).first()
    if kept is None:
        raise Conflict(f"There is a release {tag} already, or one with this id; delete it first.")
    return release_id


def list_releases(session: Session, repository_id: UUID, *, channel: str | None, drafts: bool) -> list[dict[str, Any]]:
    """The releases as they were sent, newest first, up to LIST_BYTES. Raises Invalid for an unknown channel."""
    if channel is not None and channel not in CHANNELS:
        raise Invalid("channel", f"must be one of {', '.join(CHANNELS)}.")
    query = select(Release.record).where(Release.repository_id == repository_id)
    if channel is not None:
        query = query.where(Release.channel == channel)
    if not drafts:
        query = query.where(Release.is_draft.is_(False))
    newest = query.order_by(Release.released_at.desc(), Release.tag.desc()).execution_options(yield_per=20)
    found: list[dict[str, Any]] = []
    size = 0
    with session.scalars(newest) as records:
        for record in records:
            size += len(record)
            if size > LIST_BYTES:
                break
            found.append(msgpack.unpackb(record))
    return found


def delete_release(session: Session, repository_id: UUID, tag: str) -> None:
    """Remove a release. Raises Missing."""
    this = delete(Release).where(Release.repository_id == repository_id, Release.tag == tag).returning(Release.tag)
    # What is no tag is not asked for: a URL can hold what no text column can, NUL for one.
    if RELEASE_TAG.fullmatch(tag) is None or session.execute(this).first() is None:
        raise Missing("There is no such release in this repository.")


def store_tags(session: Session, repository_id: UUID, tags: Sequence[object]) -> int:
    """Keep the tags that are new, by `tag_id`; how many. Raises Invalid for a bad one or an unknown commit."""
    rows: dict[str, dict[str, Any]] = {}
    for place, item in enumerate(tags):
        field = f"tags[{place}]"
        if not isinstance(item, Mapping):
            raise Invalid(field, "must be a map.")
        row = {key: _text(item, key, f"{field}.") for key in ("tag_id", "tag", "created_at")}
        commit_id = check_id(item.get("commit_id"), f"{field}.commit_id")
        rows.setdefault(row["tag_id"], {"repository_id": repository_id, "commit_id": commit_id, **row})
    commits = {row["commit_id"] for row in rows.values()}
    unknown = sorted(commits - generations(session, repository_id, commits).keys())
    if unknown:
        raise Invalid("tags", f"commit {unknown[0]} was not pushed here; push its branch first.")
    if not rows:
        return 0
    # As a list of parameters: one statement with all values would carry more than the driver takes.
    statement = insert(Tag).on_conflict_do_nothing().returning(Tag.tag_id)
    return len(session.execute(statement, list(rows.values())).all())


def _text(record: Mapping[str, Any], key: str, prefix: str = "") -> str:
    value = record.get(key)
    if not isinstance(value, str) or not 1 <= len(value) <= TEXT_MAX or _BAD_TEXT.search(value):
        raise Invalid(f"{prefix}{key}", f"must be text of 1 to {TEXT_MAX} characters without NUL.")
    return value


def _packed(record: dict[str, Any]) -> bytes:
    try:
        # It is answered to callers of both forms: bytes and times are no JSON, and NaN is none either.
        json.dumps(record, allow_nan=False)
        return bytes(msgpack.packb(record))
    except (TypeError, ValueError, OverflowError, RecursionError):
        # Half a surrogate pair, a number beyond 64 bits, or nesting without end: JSON, but nothing to be sent on.
        raise Invalid("release", "must be text, numbers of 64 bits, lists and maps.") from None


def _channel_of(pre: str | None) -> str:
    """The channel that a pre-release belongs to when the client names none."""
    return next((channel for channel in CHANNELS[1:] if pre and pre.startswith(channel)), CHANNELS[0])


def _check_semver(semver: object, match: re.Match[str]) -> None:
    if semver is None:
        return
    said = {key: int(match[key]) for key in ("major", "minor", "patch")}
    # Neither 1.0 nor true is the number 1 to the client.
    if not isinstance(semver, Mapping) or any(
        type(semver.get(key)) is not int or semver[key] != number for key, number in said.items()
    ):
        raise Invalid("semver", "must be the numbers of the tag.")
