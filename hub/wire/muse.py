"""Part A: what the unmodified Muse client speaks. Every 2xx answer to it is msgpack, and no path redirects."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

from flask import Blueprint, Response, request

from hub.auth import Right
from hub.errors import Invalid
from hub.held import held_objects
from hub.models.history import branch_heads, generations, head_snapshots
from hub.models.sets import BITE
from hub.pack.reader import FileSource, PackReader
from hub.pack_upload import INLINE_BYTES
from hub.push import read_incoming, receive
from hub.staging import stage_objects
from hub.uploads import PRESIGNED_MAX, collect_uploads, expect_uploads
from hub.wire import bundle, pull
from hub.wire.codec import JSON, MSGPACK, answer, answer_ids, body, read_map, take_ids
from hub.wire.context import hub, opened, page
from hub.wire.in_time import answer_in_time
from hub.wire.signed import object_to
from hub.wire.stream import begun, stream

wire = Blueprint("muse", __name__, url_prefix="/<owner>/<slug>")
NEGOTIATE_IDS = 256
COLLECT_SECONDS = 20.0
"""How long `filter-objects` looks at uploads of an interrupted push; what is left is sent again, or found next time."""
IN_STEPS = "push in steps: `muse branch p1 <an old commit>; muse push origin p1`, then a later one, then the branch."


@wire.get("/refs")
def refs(owner: str, slug: str) -> Response:
    """Branches and their heads, the default first: a clone without it takes the first one."""
    repository = opened(owner, slug, Right.READ)
    with hub().services.sessions() as session:
        heads = branch_heads(session, repository.repository_id)
        trees = head_snapshots(session, repository.repository_id)
    default = repository.default_branch or "main"
    ordered = {name: heads[name] for name in sorted(heads, key=lambda name: (name != default, name))}
    return answer(
        {
            "repo_id": repository.repo_id,
            "domain": repository.domain,
            "default_branch": default,
            "branch_heads": ordered,
            "snapshots": trees,
            "inline_bytes": INLINE_BYTES,
        }
    )


@wire.post("/filter-objects")
def filter_objects(owner: str, slug: str) -> Response:
    """Which of these objects the repository lacks."""
    repository = opened(owner, slug, Right.WRITE)
    services = hub().services
    if request.mimetype == JSON:
        batches: Iterable[list[str]] = [take_ids(read_map(), "object_ids")]
    else:
        batches = bundle.read_ids(body(services.settings.max_body_bytes), "object_ids", BITE)
    missing = bytearray()
    until = time.monotonic() + COLLECT_SECONDS
    for object_ids in batches:
        # What was uploaded straight into the store is looked for here, so that an interrupted push goes on.
        collect_uploads(services, repository.repository_id, object_ids, until=until)
        with services.sessions() as session:
            held = held_objects(session, repository.repository_id, object_ids)
        missing += bytes.fromhex("".join(object_id for object_id in object_ids if object_id not in held))
    return answer_ids("missing", missing)


@wire.post("/presign")
def presign(owner: str, slug: str) -> Response:
    """Where large objects go: into the object store, or through the hub where clients can't reach that."""
    repository = opened(owner, slug, Right.WRITE)
    data = read_map()
    if data.get("direction", "put") != "put":
        raise Invalid("direction", "must be put: objects are fetched with `fetch`.")
    object_ids = take_ids(data, "object_ids")
    some, rest = object_ids[:PRESIGNED_MAX], object_ids[PRESIGNED_MAX:]
    presigned = {item: object_to(repository.repository_id, item, repository.pusher).url for item in some}
    expect_uploads(hub().services, repository.repository_id, some)
    return answer({"presigned": presigned, "inline": rest})


@wire.post("/push/objects")
def push_objects(owner: str, slug: str) -> Response:
    """Store objects for a push to come. Order and batches carry no meaning; a repeat changes nothing."""
    repository = opened(owner, slug, Right.WRITE)
    settings = hub().services.settings
    objects = bundle.read_objects(body(settings.max_body_bytes), settings.max_object_bytes)
    staged = stage_objects(hub().services, repository.repository_id, objects)
    return answer({"stored": staged.stored, "skipped": staged.skipped})


@wire.post("/push")
def push(owner: str, slug: str) -> Response:
    """Take in commits and snapshots whose objects are here, and move the branch."""
    repository = opened(owner, slug, Right.WRITE)
    services = hub().services
    pusher, work = repository.pusher, hub().work
    with ExitStack() as stack:
        file = stack.enter_context(tempfile.TemporaryFile())
        asked = bundle.read_push(
            body(services.settings.max_bundle_bytes, IN_STEPS), file, services.settings.max_object_bytes
        )
        opened_file = stack.pop_all()

    def take_in() -> dict[str, Any]:
        with opened_file:
            incoming = read_incoming(
                PackReader.open(FileSource(file)),
                file,
                mpack_id=asked.summary.mpack_id,
                size=asked.summary.size,
                branch=asked.branch,
                force=asked.force,
            )
            for refusal in collect_uploads(services, repository.repository_id, incoming.named_objects).values():
                raise refusal
            receipt = receive(services, work, pusher, repository.repository_id, incoming)
        message = f"{incoming.branch} is now {incoming.tip[:12]}."
        return {"ok": True, "message": message, "branch_heads": receipt.branch_heads}

    return answer_in_time(take_in)


@wire.post("/negotiate")
def negotiate(owner: str, slug: str) -> Response:
    """Which of the client's commits are known here, and whether they suffice for a small `fetch`."""
    repository = opened(owner, slug, Right.READ)
    data = read_map()
    want, have = take_ids(data, "want"), take_ids(data, "have")
    if len(have) > NEGOTIATE_IDS:
        raise Invalid("have", f"must have at most {NEGOTIATE_IDS} ids a round.")
    with hub().services.sessions() as session:
        known = generations(session, repository.repository_id, have)
        ack = [commit_id for commit_id in have if commit_id in known]
        # For parts the client must name all its commits: what comes next depends on them.
        most = pull.READY_COMMITS if page() is None else 0
        ready = pull.is_ready(session, repository.repository_id, want, ack, most=most)
    common = max(ack, key=lambda commit_id: known[commit_id], default=None)
    return answer({"ack": ack, "common_base": common, "ready": ready})


@wire.post("/fetch")
def fetch(owner: str, slug: str) -> Response:
    """All that `want` reaches and `have` doesn't, in one answer; below `-/parts` and `-/page/N`, a part of it."""
    repository = opened(owner, slug, Right.READ)
    data = read_map()
    want, have = take_ids(data, "want"), take_ids(data, "have")
    remote = f"{request.host_url}{owner}/{slug}"
    services, number = hub().services, page()
    plan: pull.Stored | pull.Planned
    if number is None:
        plan = pull.plan_fetch(services, hub().work, repository.repository_id, want, have, remote=remote)
    else:
        plan = pull.plan_part(services, repository.repository_id, want, have, number, remote=remote)
    if isinstance(plan, pull.Stored):
        return stream(plan.body, MSGPACK, tail=plan.tail)
    return Response(begun(plan.chunks()), content_type=MSGPACK)
