"""Snapshots inside a pack: a manifest written out, or the changes to the one before it in the same block.

A history repeats nearly all of its manifest in every snapshot. As changes, fifty of them cost one and what
changed, in bytes and in the time to compress them; and as no chain leaves its block, a block can still be
copied as it lies.
"""

from __future__ import annotations

import bisect
import struct
from typing import TYPE_CHECKING

from hub.errors import Invalid
from hub.manifest import check_path, check_tree, pack_rows, rows_id, sorted_rows, unpack_paths, unpack_rows
from hub.records import Snapshot, make_snapshot

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

_HEAD = struct.Struct("<BB")
_REMOVED = struct.Struct("<II")
_WHOLE, _CHANGES = 0, 1
_FEW = 256
"""Changes that are put into a sorted list one by one; each moves half of it, a thousand cost as much as a new one."""


def pack_snapshot(snapshot: Snapshot, base: Mapping[str, str] | None) -> bytes:
    """The raw bytes of a snapshot, as changes to `base` where those are less than half of it.

    `base` is the manifest of the snapshot before it in the block; None when it is the first.
    """
    manifest, created_at = snapshot.manifest, snapshot.created_at.encode("ascii")
    if base is not None:
        put = dict(manifest.items() - base.items())
        removed = sorted(base.keys() - manifest.keys())
        if 2 * (len(put) + len(removed)) < len(manifest):
            text = "".join(f"{path}\0" for path in removed).encode()
            tail = _REMOVED.pack(len(removed), len(text)) + text
            return _HEAD.pack(_CHANGES, len(created_at)) + created_at + pack_rows(put) + tail
    return _HEAD.pack(_WHOLE, len(created_at)) + created_at + pack_rows(manifest)


def unpack_snapshots(entries: Iterable[tuple[str, bytes]], *, checked: bool = False) -> Iterator[Snapshot]:
    """The snapshots of one block, from (id, raw bytes) in their order.

    Each is checked like a received one: paths, ids, recomputed id; `checked`: they have been before, and are not again.
    Raises Invalid.
    """
    base: dict[str, str] | None = None
    rows: list[str] = []
    for entity_id, raw in entries:
        field = f"snapshots[{entity_id}]"
        created_at, base, touched = _unpack(raw, base, field, checked=checked)
        if checked:
            yield Snapshot(entity_id, dict(base), created_at)
            continue
        rows = _follow(rows, base, touched)
        yield make_snapshot(entity_id, dict(base), created_at, field, rows_id(rows))


def named_objects(raws: Iterable[bytes]) -> set[str]:
    """Every object that the snapshots of one block name, from their raw bytes, which have been checked.

    What a snapshot does not put itself, one before it in the block has put.
    """
    return {object_id for raw in raws for object_id in _unpack_put(raw, "snapshots")[2].values()}


def _unpack(
    raw: bytes, base: dict[str, str] | None, field: str, *, checked: bool
) -> tuple[str, dict[str, str], Collection[str] | None]:
    """The created_at and the manifest of a snapshot, and the paths in which it differs from `base`, None: in all."""
    form, created_at, put, end = _unpack_put(raw, field)
    if not checked:
        for path in put:
            check_path(path, f"{field}.manifest")
    touched: Collection[str] | None = None
    if form == _WHOLE:
        manifest = put
        if not checked:
            check_tree(manifest, f"{field}.manifest")
    elif form == _CHANGES and base is not None:
        removed, end = _unpack_removed(raw, end, field)
        manifest = _changed(base, put, removed, field)
        touched = [*put, *removed]
    else:
        raise Invalid(field, f"is of unknown form {form}, or has changes without a snapshot before it in its block")
    if end != len(raw):
        raise Invalid(field, f"has {len(raw) - end} bytes after its end")
    return created_at, manifest, touched


def _follow(rows: list[str], manifest: Mapping[str, str], touched: Collection[str] | None) -> list[str]:
    """The rows of `manifest`, made from those of the one before it, which differs from it in the paths `touched`."""
    if touched is None or len(touched) > _FEW:
        return sorted_rows(manifest)
    for path in touched:
        head = f"{path}\0"
        at = bisect.bisect_left(rows, head)
        end = at + (at < len(rows) and rows[at].startswith(head))
        rows[at:end] = [head + manifest[path]] if path in manifest else []
    return rows


def _unpack_put(raw: bytes, field: str) -> tuple[int, str, dict[str, str], int]:
    """The form, created_at, the rows that are put, and where they end."""
    if len(raw) < _HEAD.size:
        raise Invalid(field, "ends inside its head")
    form, length = _HEAD.unpack_from(raw)
    start = _HEAD.size + length
    try:
        created_at = raw[_HEAD.size : start].decode("ascii")
    except UnicodeDecodeError:
        raise Invalid(f"{field}.created_at", "must be ASCII text") from None
    put, end = unpack_rows(raw, start, field)
    return form, created_at, put, end


def _unpack_removed(raw: bytes, offset: int, field: str) -> tuple[list[str], int]:
    if len(raw) - offset < _REMOVED.size:
        raise Invalid(field, "ends inside its lengths")
    count, length = _REMOVED.unpack_from(raw, offset)
    start = offset + _REMOVED.size
    if start + length > len(raw):
        raise Invalid(field, f"declares {length} bytes of removed paths, more than there are")
    return unpack_paths(raw[start : start + length], count, field), start + length


def _changed(base: dict[str, str], put: dict[str, str], removed: list[str], field: str) -> dict[str, str]:
    manifest = dict(base)
    for path in removed:
        if manifest.pop(path, None) is None:
            raise Invalid(field, f"removes the path {path[:200]!r}, which is not there")
    if put.keys() & set(removed):
        raise Invalid(field, "removes a path and puts it, too")
    new = put.keys() - base.keys()
    manifest.update(put)
    if new:
        check_tree(manifest, f"{field}.manifest")
    return manifest
