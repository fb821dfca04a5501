"""What the hub says of an upload: what of a pack is to be sent, and where to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from hub.client.shape import required_text, unexpected

HEADER_NAME = re.compile(r"[A-Za-z0-9-]{1,100}")


@dataclass(frozen=True, slots=True)
class UploadLink:
    """Where and how a pack is to be sent."""

    url: str
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class PartToSend:
    """One part of a pack: `size` bytes from `offset` on."""

    offset: int
    size: int
    link: UploadLink


@dataclass(frozen=True, slots=True)
class PartsToSend:
    """A pack that is sent in parts: some of those that are still missing, and how many have arrived."""

    part_size: int
    arrived: int
    parts: tuple[PartToSend, ...]


@dataclass(frozen=True, slots=True)
class Presigned:
    """The answer to «may I push this pack?». `upload` is None when nothing of it has to be sent any more."""

    mpack_key: str
    upload: UploadLink | PartsToSend | None


def parse_presigned(fields: Mapping[str, Any]) -> Presigned:
    """Check the answer of `POST push/mpack/presign`."""
    key = required_text(fields, "mpack_key")
    upload = fields.get("upload")
    if upload is None:
        return Presigned(key, None)
    if isinstance(upload, dict) and isinstance(upload.get("parts"), list):
        return Presigned(key, _parse_parts(upload))
    return Presigned(key, _parse_link(upload, "upload"))


def _parse_link(value: object, name: str) -> UploadLink:
    if not isinstance(value, dict) or value.get("method") != "PUT":
        raise unexpected(name, "null or an object whose method is PUT")
    headers = value.get("headers") or {}
    if not isinstance(headers, dict) or not all(_is_header(*pair) for pair in headers.items()):
        raise unexpected(f"{name}.headers", "an object of header names and values")
    return UploadLink(required_text(value, "url"), headers)


def _parse_parts(upload: Mapping[str, Any]) -> PartsToSend:
    part_size, arrived = upload.get("part_size"), upload.get("arrived")
    if not _is_count(part_size) or not part_size or not isinstance(arrived, list) or not upload["parts"]:
        raise unexpected("upload", "a part_size, a list of what has arrived, and one of parts to send")
    parts = []
    for place, part in enumerate(upload["parts"]):
        link = _parse_link(part, f"upload.parts[{place}]")
        if not _is_count(part.get("offset")) or not _is_count(part.get("size")) or part["size"] > part_size:
            raise unexpected(f"upload.parts[{place}]", "an offset, and a size of at most part_size")
        parts.append(PartToSend(part["offset"], part["size"], link))
    return PartsToSend(int(part_size), len(arrived), tuple(parts))


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_header(name: str, value: object) -> bool:
    return (
        HEADER_NAME.fullmatch(name) is not None
        and name.lower() not in {"content-length", "transfer-encoding"}
        and isinstance(value, str)
        and value.isascii()
        and value.isprintable()
    )
