"""fsck finds each kind of damage, says what it means, and mends what can be mended."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner, Result
from werkzeug.test import TestResponse

from hub.cli.fsck import fsck
from hub.errors import CorruptMpack
from hub.fsck.check import Checked, check_repository
from hub.fsck.findings import Code
from hub.fsck.repair import repair
from hub.indexing import index_mpack
from hub.keys import archive_key, mpack_key
from hub.work import INDEX, PREBUILD
from tests.hub.racing import at_tip, pushed
from tests.hub.views import cached, fetch_mpack, jobs, model, pushed_mpacks
from tests.hub.world import History, World

pytestmark = pytest.mark.integration

Ask = Callable[[World, str, str], TestResponse]


@pytest.fixture
def tip(world: World, history: History) -> str:
    """The head of a repository in good order."""
    for tip in history.line(3):
        pushed(world.push_mpack(history, tip))
    world.drain()
    return tip


def found(world: World, *, with_bytes: bool = True) -> list[tuple[Code, str]]:
    return [(item.code, item.subject) for item in findings(world, with_bytes=with_bytes)]


def findings(world: World, *, with_bytes: bool = True) -> list[Any]:
    checked = Checked(world.hub.services, world.repository_id, "alice/data", with_bytes, lambda _: None)
    return list(check_repository(checked))


def mend(world: World) -> list[str | None]:
    return [repair(world.hub.services, world.hub.work, item) for item in findings(world)]


def execute(world: World, *statements: str) -> None:
    """Damage rows, as a bad disk or a wrong backup does: the foreign keys are not asked."""
    with world.hub.services.sessions.begin() as session:
        connection = session.connection()
        connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        for statement in statements:
            connection.exec_driver_sql(statement)


def overwrite(world: World, mpack_id: str) -> bytes:
    """Flip a byte of a stored pack; what it was."""
    key = archive_key(world.repository_id, mpack_id)
    with world.archive.get(key) as body:
        raw = b"".join(body)
    world.archive.put(key, raw[:20] + bytes([raw[20] ^ 1]) + raw[21:])
    return raw


@contextmanager
def command_line(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr("hub.app.create_app", lambda: world.app)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(fsck, list(arguments))

    yield run


@pytest.mark.parametrize("transport", ["mpack", "muse"])
def test_a_repository_in_good_order_has_no_findings(world: World, history: History, transport: str) -> None:
    empty = history.commit({})
    tips = [empty, history.commit({"a": b"", "dir/b": b"b"}, empty)]
    tips.append(history.commit({"a": b"x"}, *tips[::-1]))
    for tip in tips:
        pushed((world.push_mpack if transport == "mpack" else world.push_muse)(history, tip))
    assert found(world) == []
    world.drain()
    assert found(world) == []
    assert found(world, with_bytes=False) == []


def test_a_repository_without_a_push_is_in_good_order(world: World) -> None:
    assert found(world) == []


def test_a_damaged_pack_is_found_set_aside_and_mended_by_a_push(world: World, history: History) -> None:
    (tip,) = history.line(1)
    pushed(world.push_mpack(history, tip))
    world.drain()
    (mpack_id,) = pushed_mpacks(world)
    raw = overwrite(world, mpack_id)
    assert found(world) == [(Code.PACK_DAMAGED, mpack_id)]
    assert found(world, with_bytes=False) == []
    assert mend(world) == ["set aside"]
    missing = model(history, [tip]).objects
    assert set(found(world)) == {(Code.OBJECT_MISSING, item) for item in missing} | {(Code.PACK_SET_ASIDE, mpack_id)}
    pushed(world.push_bytes(mpack_id, raw, tip))
    world.drain()
    assert found(world) == []


def test_a_lost_pack_is_found_without_reading_and_mended_by_a_push(world: World, history: History) -> None:
    (tip,) = history.line(1)
    pushed(world.push_mpack(history, tip))
    world.drain()
    mpack_id, raw = history.mpack([tip])
    world.archive.delete(archive_key(world.repository_id, mpack_id))
    assert found(world, with_bytes=False) == [(Code.PACK_MISSING, mpack_id)]
    assert mend(world) == ["set aside"]
    pushed(world.push_bytes(mpack_id, raw, tip))
    world.drain()
    assert found(world) == []


def test_a_prebuild_that_meets_damage_names_the_pack_and_a_push_mends(world: World, history: History) -> None:
    """Damage that came after the index job had read the pack."""
    (tip,) = history.line(1)
    pushed(world.push_mpack(history, tip))
    mpack_id, raw = history.mpack([tip])
    with world.hub.services.sessions.begin() as session:
        index_mpack(world.hub.services, session, world.repository_id, mpack_key(mpack_id))
    overwrite(world, mpack_id)
    world.drain()
    (job,) = jobs(world, PREBUILD)
    assert (job.status, job.last_error_code) == ("quarantined", "MPACK_CORRUPT")
    assert mpack_id in str(job.last_error)
    answer = world.post("/fetch/mpack", {"want": [], "have": []})
    assert (answer.status_code, answer.get_json()["error"]) == (500, "MPACK_INDEX_FAILED")
    pushed(world.push_bytes(mpack_id, raw, tip))
    world.drain()
    assert fetch_mpack(world) == model(history, [tip])
    assert found(world) == []


def test_a_delta_that_meets_damage_sets_the_pack_aside(world: World, history: History, tip: str) -> None:
    first = history.ancestors(tip)[-1]
    for mpack_id in pushed_mpacks(world):
        overwrite(world, mpack_id)
    answer = world.post("/fetch/mpack", {"want": [tip], "have": [first]})
    assert answer.status_code == 503
    assert Code.PACK_SET_ASIDE in {code for code, _ in found(world)}


def fetched_by_muse(world: World, want: str, have: str) -> TestResponse:
    return world.post("/fetch", {"want": [want], "have": [have]}, muse=True)


def downloaded(world: World, _: str, __: str) -> TestResponse:
    return world.get("/archive/main.tar.gz")


@pytest.mark.parametrize("ask", [fetched_by_muse, downloaded])
@pytest.mark.parametrize("begun", [True, False], ids=["after its first bytes", "before them"])
def test_a_stream_that_meets_damage_breaks_off_and_sets_the_pack_aside(
    world: World,
    history: History,
    tip: str,
    ask: Ask,
    begun: bool,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is an error as long as nothing has gone out."""
    first = history.ancestors(tip)[-1]
    (mpack_id, *others) = pushed_mpacks(world)
    for damaged in (mpack_id, *others):
        overwrite(world, damaged)
    if begun:
        for module in ("muse", "download"):
            monkeypatch.setattr(f"hub.wire.{module}.begun", lambda chunks: chunks)
        with pytest.raises(CorruptMpack):
            _ = ask(world, tip, first).data
    else:
        answer = ask(world, tip, first)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
        assert "damaged" in answer.text
    (aside,) = {about for code, about in found(world) if code == Code.PACK_SET_ASIDE}
    assert f"pack {aside} of repository {world.repository_id} is damaged" in caplog.text


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE hub.mpack_index SET raw_offset = raw_offset + 1 WHERE kind = 1",
        "DELETE FROM hub.mpack_index WHERE kind = 3",
        "UPDATE hub.mpack_block SET checksum = 7",
    ],
)
def test_a_wrong_index_is_found_and_written_again(world: World, history: History, tip: str, damage: str) -> None:
    execute(world, damage)
    assert {code for code, _ in found(world)} == {Code.INDEX_WRONG}
    assert set(mend(world)) == {"queued mpack.index"}
    world.drain()
    assert found(world) == []
    at_tip(world, history, tip)


def test_a_pack_whose_index_job_is_gone_gets_another(world: World, history: History) -> None:
    tip = history.line(1)[0]
    pushed(world.push_mpack(history, tip))
    execute(world, "DELETE FROM tasks.job")
    assert {code for code, _ in found(world)} == {Code.NOT_INDEXED, Code.NOT_PREBUILT}
    mend(world)
    assert len(jobs(world, INDEX, "pending")) == 1
    world.drain()
    assert found(world) == []
    at_tip(world, history, tip)


@pytest.mark.parametrize("how", ["gone", "damaged", "unnamed"])
def test_a_clone_cache_that_is_not_what_it_should_be_is_built_again(
    world: World, history: History, tip: str, how: str
) -> None:
    (key, *_) = [stat.key for stat in world.cache.list("mpacks/")]
    if how == "gone":
        world.cache.delete(key)
    elif how == "damaged":
        world.cache.put(key, b"not a pack")
    else:
        execute(world, "DELETE FROM hub.fetch_mpack_cache")
    assert [code for code, _ in found(world)] == [Code.NOT_PREBUILT if how == "unnamed" else Code.CACHE_MISSING]
    assert mend(world) == ["queued fetch.mpack.prebuild"]
    world.drain()
    assert found(world) == []
    assert cached(world).keys() == {tip}


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        ("UPDATE hub.commit SET snapshot_id = sha256('x') WHERE generation = 1", Code.COMMIT_WRONG),
        ("UPDATE hub.commit SET record = record || 'x' WHERE generation = 1", Code.COMMIT_WRONG),
        ("DELETE FROM hub.commit WHERE generation = 1", Code.COMMIT_MISSING),
        ("DELETE FROM hub.commit WHERE generation = 2", Code.COMMIT_MISSING),
        ("UPDATE hub.commit SET generation = 9 WHERE generation = 2", Code.COMMIT_MISSING),
        ("UPDATE hub.snapshot SET manifest = substr(manifest, 1, 20)", Code.SNAPSHOT_WRONG),
        ("DELETE FROM hub.snapshot", Code.COMMIT_MISSING),
        ("DELETE FROM hub.mpack_index WHERE kind = 1", Code.OBJECT_MISSING),
    ],
)
def test_damaged_rows_are_found(world: World, history: History, tip: str, damage: str, code: Code) -> None:
    execute(world, damage)
    assert code in {item for item, _ in found(world, with_bytes=False)}


def test_the_command_says_what_it_found_and_ends_with_1(
    world: World, history: History, tip: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with command_line(world, monkeypatch) as run:
        fine = run("alice/data")
        assert (fine.exit_code, fine.output.splitlines()[-1]) == (0, "1 repository checked, 0 findings.")
        mpack_id = min(pushed_mpacks(world))
        overwrite(world, mpack_id)
        bad = run()
        assert bad.exit_code == 1
        assert f"alice/data: PACK_DAMAGED {mpack_id}: the file's SHA-256 is not the pack's id." in bad.output
        said = json.loads(run("--json", "--repair").stdout)
        assert said["findings"][0]["repaired"] == "set aside"
        assert run("alice/none").exit_code == 1
