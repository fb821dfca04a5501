"""What a key may look like.

Checked on the way in, and on the way out of a listing: what lies in a bucket outlives the code that put it there.
"""

from __future__ import annotations

import re

from storage.errors import InvalidKey

KEY_LENGTH_MAX = 900
"""S3 ends at 1,024 bytes; the rest is room for the prefixes of roles."""
SEGMENT_LENGTH_MAX = 255
"""The longest name of a file, for stores that are file systems underneath."""

FOREIGN = re.compile(r"[^0-9A-Za-z_.=/-]")


def check_key(key: str) -> str:
    """Return `key`; raises InvalidKey with the reason if no store may be asked for it."""
    if not key:
        raise InvalidKey(key, "a key must not be empty")
    check_prefix(key)
    if key.endswith("/"):
        raise InvalidKey(key, "a key must not end with «/»: some stores make a folder of it")
    return key


def check_prefix(prefix: str) -> str:
    """Return `prefix`; raises InvalidKey with the reason if no key can begin with it. It may end anywhere."""
    if len(prefix) > KEY_LENGTH_MAX:
        raise InvalidKey(prefix[:40] + "…", f"a key has at most {KEY_LENGTH_MAX} characters")
    foreign = FOREIGN.search(prefix)
    if foreign:
        # Encodings, case and quoting of anything else differ between stores, proxies and signatures.
        raise InvalidKey(ascii(prefix), f"a key is made of 0-9 A-Z a-z _ . = - /, not of {foreign[0]!a}")
    segments = prefix.split("/")
    for position, segment in enumerate(segments):
        if not segment and position < len(segments) - 1:
            raise InvalidKey(prefix, "a key has no empty segment: some stores fold «//» and a leading «/»")
        if segment.startswith("."):
            # «.» and «..» climb; SeaweedFS keeps unfinished uploads in «.uploads».
            raise InvalidKey(prefix, "a segment must not begin with «.»: stores keep such names")
        if len(segment) > SEGMENT_LENGTH_MAX:
            raise InvalidKey(prefix[:40] + "…", f"a segment has at most {SEGMENT_LENGTH_MAX} characters")
    return prefix
