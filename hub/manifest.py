"""Manifests: what may be in one, its id, and its compact form.

A manifest maps every path of a snapshot to the id of the object that lies there. The compact form is what a
snapshot row of the database holds, and the part of a snapshot inside a pack that costs space; its bytes are
in docs/reference/mpack.md, «Rows».
"""

from __future__ import annotations

import hashlib
import itertools
import re
import struct
from collections.abc import Iterable, Mapping

import zstandard

from hub.errors import Invalid, TooLarge

ID_BYTES = 32
MAX_PATH = 4096
"""Characters of one path; no system that a snapshot comes from has longer ones."""
MAX_MANIFEST_BYTES = 64 * 1024 * 1024
"""Bytes of a manifest in its compact form before compression: about a million paths."""

_ID = re.compile(r"[0-9a-f]{64}")
_BAD_PATH = re.compile(r"(?:\A|/)(?:\.{0,2}|\.muse)(?:/|\Z)|\0", re.IGNORECASE)
_ROWS = struct.Struct("<II")
_ENCODED_VERSION = b"\x01"
_WINDOW_MAX = 8 * 1024 * 1024


def check_id(value: object, field: str) -> str:
    """Return `value` if it is an id: 64 lower-case hex digits. Raises Invalid naming `field`."""
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise Invalid(field, "must be 64 lower-case hexadecimal digits (a SHA-256)")
    return value


def check_path(path: object, field: str) -> str:
    """Return `path` if a snapshot may hold it.

    Not empty, relative, `/` between segments, no segment that is empty, `.`, `..` or `.muse`, no NUL, UTF-8.
    `.muse` is refused in any case: where file names ignore case, a client would write into its own store.
    Raises Invalid naming `field`.
    """
    if not isinstance(path, str):
        raise Invalid(field, "every path must be a string")
    if len(path) > MAX_PATH:
        raise Invalid(field, f"a path has {len(path)} characters, at most {MAX_PATH} are allowed")
    if _BAD_PATH.search(path):
        raise Invalid(
            field,
            f"the path {path[:200]!r} must be relative, without NUL and without a segment that is empty, "
            "«.», «..» or «.muse»",
        )
    try:
        path.encode()
    except UnicodeEncodeError:
        raise Invalid(field, f"the path {path[:200]!r} is not valid UTF-8") from None
    return path


def check_manifest(manifest: object, field: str) -> dict[str, str]:
    """Return `manifest` as a dict if it is path → object id and its paths can lie in one tree.

    Raises Invalid naming `field`: a bad path, a bad id, or a path that is also a directory of another.
    """
    if not isinstance(manifest, Mapping):
        raise Invalid(field, "must be a map of path to object id")
    for path, entity_id in manifest.items():
        check_path(path, field)
        if not isinstance(entity_id, str) or not _ID.fullmatch(entity_id):
            check_id(entity_id, f"{field}[{path[:200]!r}]")
    check_tree(manifest, field)
    return dict(manifest)


def check_tree(manifest: Mapping[str, str], field: str) -> None:
    """Refuse a path that is also a directory of another. Raises Invalid naming `field`."""
    # With the separator as the lowest character, what lies below a path follows it at once.
    ordered = sorted(path.replace("/", "\0") for path in manifest)
    for path, following in itertools.pairwise(ordered):
        if following.startswith(path) and following[len(path)] == "\0":
            shown = path.replace("\0", "/")[:200]
            raise Invalid(field, f"the path {shown!r} is a file and also a directory of another path")


def snapshot_id(manifest: Mapping[str, str]) -> str:
    """The id of a snapshot: SHA-256 of the rows `path NUL object_id`, sorted and joined by NUL.

    The empty manifest has the id of the empty object.
    """
    return rows_id(sorted_rows(manifest))


def sorted_rows(manifest: Mapping[str, str]) -> list[str]:
    """The rows `path NUL object_id` of a manifest, in their order."""
    # NUL is the lowest character and no path holds one, so the order of the paths is the order of the rows.
    return [f"{path}\0{manifest[path]}" for path in sorted(manifest)]


def rows_id(rows: Iterable[str]) -> str:
    """The id of the snapshot that has these rows, which are sorted."""
    return hashlib.sha256("\0".join(rows).encode()).hexdigest()


def pack_rows(manifest: Mapping[str, str]) -> bytes:
    """The rows of a manifest, compact: two lengths, sorted paths each ended by NUL, the raw ids in order."""
    paths = sorted(manifest)
    text = "\0".join([*paths, ""]).encode()
    return _ROWS.pack(len(paths), len(text)) + text + bytes.fromhex("".join(map(manifest.__getitem__, paths)))


def unpack_rows(raw: bytes, offset: int, field: str) -> tuple[dict[str, str], int]:
    """The manifest that `pack_rows` made, and where it ends.

    Raises Invalid naming `field` for lengths that do not fit, and for paths that are unsorted or repeated.
    The rules of `check_path` are the caller's to apply.
    """
    if len(raw) - offset < _ROWS.size:
        raise Invalid(field, "ends inside its lengths")
    count, text_length = _ROWS.unpack_from(raw, offset)
    ids_at = offset + _ROWS.size + text_length
    end = ids_at + count * ID_BYTES
    if end > len(raw):
        raise Invalid(field, f"declares {count} paths in {text_length} bytes, more than there are")
    paths = unpack_paths(raw[offset + _ROWS.size : ids_at], count, field)
    digits = raw[ids_at:end].hex()
    width = 2 * ID_BYTES
    return {path: digits[at : at + width] for path, at in zip(paths, range(0, len(digits), width), strict=True)}, end


def unpack_paths(text: bytes, count: int, field: str) -> list[str]:
    """Exactly `count` paths, each ended by NUL, strictly ascending. Raises Invalid naming `field`."""
    if text.count(b"\0") != count or (text and text[-1] != 0):
        raise Invalid(field, f"does not hold {count} paths that each end in NUL")
    try:
        paths = text.decode().split("\0")[:-1]
    except UnicodeDecodeError:
        raise Invalid(field, "holds a path that is not valid UTF-8") from None
    if any(first >= second for first, second in itertools.pairwise(paths)):
        raise Invalid(field, "holds paths that are repeated or not in order")
    return paths


def encode_manifest(manifest: Mapping[str, str]) -> bytes:
    """The compact form of a manifest, compressed: a version byte and one zstd frame of `pack_rows`.

    Raises TooLarge above MAX_MANIFEST_BYTES.
    """
    rows = pack_rows(manifest)
    if len(rows) > MAX_MANIFEST_BYTES:
        raise TooLarge(f"a manifest takes {len(rows)} bytes, at most {MAX_MANIFEST_BYTES} are allowed")
    return _ENCODED_VERSION + zstandard.ZstdCompressor(level=3, write_checksum=False).compress(rows)


def decode_manifest(encoded: bytes) -> dict[str, str]:
    """The manifest that `encode_manifest` made.

    Never takes more memory than MAX_MANIFEST_BYTES of rows need. Raises Invalid for anything else.
    """
    rows = _decompress(encoded)
    manifest, end = unpack_rows(rows, 0, "manifest")
    if end != len(rows):
        raise Invalid("manifest", f"has {len(rows) - end} bytes after its end")
    return manifest


def msgpack_size(encoded: bytes) -> int:
    """Bytes of an encoded manifest as a msgpack map of path → id, as the wire has it, without building the map."""
    rows = _decompress(encoded)
    count: int
    count, text_length = _ROWS.unpack_from(rows)
    lengths = [len(path) for path in rows[_ROWS.size : _ROWS.size + text_length].split(b"\0")[:-1]]
    heads = count + sum(length > 31 for length in lengths) + sum(length > 255 for length in lengths)
    return (1 if count < 16 else 3 if count < 1 << 16 else 5) + heads + sum(lengths) + count * (2 + 2 * ID_BYTES)


def _decompress(encoded: bytes) -> bytes:
    if encoded[:1] != _ENCODED_VERSION:
        raise Invalid("manifest", "is not an encoded manifest of version 1")
    frame = encoded[1:]
    try:
        size = zstandard.frame_content_size(frame)
        if not 0 < size <= MAX_MANIFEST_BYTES:
            raise Invalid("manifest", f"must declare a size between 1 and {MAX_MANIFEST_BYTES} bytes")
        rows = zstandard.ZstdDecompressor(max_window_size=_WINDOW_MAX).decompress(
            frame, max_output_size=size, allow_extra_data=False
        )
    except zstandard.ZstdError:
        raise Invalid("manifest", "is damaged: it cannot be decompressed") from None
    return bytes(rows)
