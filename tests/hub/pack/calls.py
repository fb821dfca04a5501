"""Any sequence of calls of a writer, and what must be in the pack after it."""

from __future__ import annotations

import io
from typing import Any

from hypothesis import strategies as st

from hub.pack.writer import PackWriter
from hub.records import Commit, Snapshot, object_id
from tests.hub.pack.build import commit, contents, manifests, snapshot

Call = bytes | Snapshot | Commit


@st.composite
def histories(draw: st.DrawFn) -> list[Snapshot]:
    """Snapshots that mostly change a little from one to the next."""
    many = {f"d{n % 3}/{n}": object_id(b"%d" % n) for n in range(draw(st.sampled_from([0, 3, 40])))}
    manifest = {**{f"x/{path}": entity_id for path, entity_id in draw(manifests()).items()}, **many}
    made = [snapshot(dict(manifest))]
    for _ in range(draw(st.integers(0, 6))):
        for path in draw(st.lists(st.sampled_from(sorted(manifest) or [""]), max_size=3)):
            if draw(st.booleans()):
                manifest.pop(path, None)
            elif path in manifest:
                manifest[path] = object_id(draw(st.binary(max_size=4)))
        manifest.update({f"y{n}": object_id(b"y") for n in draw(st.lists(st.integers(0, 5), max_size=2))})
        made.append(snapshot(dict(manifest)))
    return made


@st.composite
def calls(draw: st.DrawFn) -> list[Call]:
    """Any mixture of adds, repeats included."""
    history = draw(histories())
    commits = [commit(one, draw(st.text("aé\n", max_size=3))) for one in history]
    pool: list[Call] = [*draw(st.lists(contents, max_size=8)), b"", *history, *commits]
    return draw(st.lists(st.sampled_from(pool), max_size=40))


def add(writer: PackWriter, call: Call) -> None:
    if isinstance(call, bytes):
        writer.add_object(object_id(call), call)
    elif isinstance(call, Snapshot):
        writer.add_snapshot(call)
    else:
        writer.add_commit(call)


def written(made: list[Call]) -> tuple[bytes, str]:
    out = io.BytesIO()
    writer = PackWriter(out)
    for call in made:
        add(writer, call)
    mpack_id = writer.finish().mpack_id
    return out.getvalue(), mpack_id


def call_id(call: Call) -> str:
    if isinstance(call, bytes):
        return object_id(call)
    return call.snapshot_id if isinstance(call, Snapshot) else call.commit_id


def expected(made: list[Call], of: type) -> list[Any]:
    """What a pack of these calls holds of one kind: the first of each id, in order, without the empty
    object.
    """
    first: dict[str, Any] = {}
    for call in made:
        if isinstance(call, of) and call != b"":
            first.setdefault(call_id(call), call)
    return list(first.values())
