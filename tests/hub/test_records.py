from __future__ import annotations

from typing import Any

import msgpack
import pytest

from hub.errors import Invalid
from hub.records import (
    EMPTY_OBJECT_ID,
    check_branch,
    commit_id,
    commit_record,
    object_id,
    parse_commit,
    parse_snapshot,
    snapshot_id,
    snapshot_record,
)

HELLO = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
SNAPSHOT = "98a339dc918680a9b8465b122f389fd080b12398c65fa5077ecc71cde5eda2d9"
ACCENT_SNAPSHOT = "fe8ef5ae23d5daf50c2d55e44f88c82cc33e07027055ad56c63cc7aa5a6d060b"
# Each the sha256sum of its preimage, fields joined by NUL.
ROOT = "6a30ec42f470654a4de718bdf4ccdc22eeadc8c6e70a4674d115f1179baa74fd"
CHILD = "98e64dc63c8964703cdee11af6871d3be61d380304f84d771768df1f61437d99"
MERGE = "2f217fa2af28099bf021c354b7e46cc50fbe7adecf9d25277199101605a8c1a0"
NOON = "2026-03-24T12:00:00+00:00"


def record(**changes: Any) -> dict[str, Any]:
    """A good commit record with `changes`; its id is that of the good one."""
    return {**commit_record(snapshot_id=SNAPSHOT, message="first", committed_at=NOON), **changes}


def sealed(**changes: Any) -> dict[str, Any]:
    """A commit record with `changes` whose id is right for them."""
    changed = record(**changes)
    parents = [changed[key] for key in ("parent_commit_id", "parent2_commit_id") if changed[key] is not None]
    changed["commit_id"] = commit_id(parents, changed["snapshot_id"], changed["message"], changed["committed_at"])
    return changed


class TestIds:
    def test_object_id_is_the_sha256_of_the_bytes(self) -> None:
        assert object_id(b"hello") == HELLO
        assert object_id(b"") == EMPTY_OBJECT_ID

    def test_root_commit_begins_with_an_empty_field(self) -> None:
        assert commit_id([], SNAPSHOT, "first", NOON) == ROOT

    def test_message_is_hashed_as_it_stands(self) -> None:
        assert commit_id([ROOT], ACCENT_SNAPSHOT, "second\nlíne", "2026-03-24T12:00:01.000001+00:00") == CHILD

    def test_parents_are_hashed_in_order_of_their_ids(self) -> None:
        for parents in ([ROOT, CHILD], [CHILD, ROOT]):
            assert commit_id(parents, SNAPSHOT, "", "2026-03-24T14:00:00+02:00") == MERGE


class TestCommit:
    def test_record_has_the_22_keys(self) -> None:
        assert len(record()) == 22
        assert record()["commit_id"] == ROOT

    def test_record_survives(self) -> None:
        made = commit_record(
            snapshot_id=SNAPSHOT,
            message="",
            committed_at="2026-03-24T14:00:00+02:00",
            parents=(CHILD, ROOT),
            author="Ada",
            branch="main",
        )
        raw = msgpack.packb(made)
        commit = parse_commit(raw)
        assert commit.commit_id == MERGE
        assert commit.parents == (CHILD, ROOT)
        assert (commit.author, commit.branch, commit.message) == ("Ada", "main", "")
        assert commit.raw == raw
        assert parse_commit(made) == commit

    def test_defaults_are_not_shared(self) -> None:
        record()["metadata"]["section"] = "x"
        assert record()["metadata"] == {}

    def test_a_third_parent_cannot_be_written(self) -> None:
        with pytest.raises(ValueError, match="two parents"):
            commit_record(snapshot_id=SNAPSHOT, message="", committed_at=NOON, parents=(ROOT, CHILD, MERGE))

    def test_unknown_key_cannot_be_written(self) -> None:
        with pytest.raises(TypeError, match="auhtor"):
            commit_record(snapshot_id=SNAPSHOT, message="", committed_at=NOON, auhtor="Ada")

    def test_short_record_takes_defaults(self) -> None:
        keys = ("commit_id", "snapshot_id", "message", "committed_at")
        commit = parse_commit({key: record()[key] for key in keys})
        assert (commit.parents, commit.author, commit.branch) == ((), "", "")

    @pytest.mark.parametrize("key", ["commit_id", "snapshot_id", "message", "committed_at"])
    def test_missing_key_is_named(self, key: str) -> None:
        short = record()
        del short[key]
        with pytest.raises(Invalid) as caught:
            parse_commit(short, "commits[3]")
        assert caught.value.field == f"commits[3].{key}"

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("commit_id", CHILD),
            ("commit_id", ROOT.upper()),
            ("commit_id", ROOT + "\n"),
            ("snapshot_id", ACCENT_SNAPSHOT),
            ("message", "First"),
            ("message", "fir\0st"),
            ("message", b"first"),
            ("committed_at", "2026-03-24T12:00:00Z"),
            ("committed_at", "2026-03-24T12:00:00"),
            ("committed_at", "2026-03-24 12:00:00+00:00"),
            ("committed_at", "2026-03-24T12:00:00.000000+00:00"),
            ("committed_at", "2026-03-24T12:00:00+0000"),
            ("committed_at", "2026-W13-2"),
            ("committed_at", ""),
            ("committed_at", NOON + "\0"),
            ("parent_commit_id", ""),
            ("parent_commit_id", CHILD[:63]),
            ("parent_commit_id", 5),
            ("parent2_commit_id", CHILD),
            ("author", "A\0da"),
            ("author", None),
            ("branch", 5),
            ("metadata", {"section": 5}),
            ("metadata", []),
            ("reviewed_by", "Ada"),
            ("reviewed_by", [5]),
            ("test_runs", True),
            ("test_runs", "1"),
            ("format_version", 1.5),
        ],
    )
    def test_bad_value_is_named(self, key: str, value: object) -> None:
        changed = record(**{key: value})
        named = (
            "commit_id" if key in {"snapshot_id", "message"} and isinstance(value, str) and "\0" not in value else key
        )
        with pytest.raises(Invalid) as caught:
            parse_commit(changed, "commits[0]")
        assert caught.value.field == f"commits[0].{named}"

    @pytest.mark.parametrize("value", ["2026-03-24T12:00:00Z", "2026-03-24T12:00:00", "20260324T120000+00:00"])
    def test_time_that_a_client_would_spell_otherwise_is_refused_though_its_id_is_right(self, value: str) -> None:
        with pytest.raises(Invalid, match="committed_at"):
            parse_commit(sealed(committed_at=value))

    def test_nul_is_refused_though_the_id_is_right(self) -> None:
        with pytest.raises(Invalid, match="message"):
            parse_commit(sealed(message="a\0b"))

    def test_second_parent_alone_is_refused(self) -> None:
        with pytest.raises(Invalid, match="parent2_commit_id"):
            parse_commit(sealed(parent2_commit_id=CHILD))

    def test_what_is_in_no_id_may_change(self) -> None:
        changed = record(author="Bob", reviewed_by=["Eve"], test_runs=3, branch="x", structured_delta={"ops": []})
        assert parse_commit(changed).commit_id == ROOT

    def test_text_that_is_not_utf8_is_refused(self) -> None:
        with pytest.raises(Invalid):
            parse_commit(record(author="\udc80"))
        with pytest.raises(Invalid):
            parse_commit(msgpack.packb(record(author="X")).replace(b"\xa1X", b"\xa1\xff"))


class TestSnapshot:
    def test_record_survives(self) -> None:
        snapshot = parse_snapshot(snapshot_record({"é.txt": HELLO}, NOON))
        assert snapshot.snapshot_id == ACCENT_SNAPSHOT
        assert snapshot.manifest == {"é.txt": HELLO}
        assert snapshot.created_at == NOON

    def test_empty_manifest_is_valid(self) -> None:
        assert parse_snapshot(snapshot_record({}, NOON)).snapshot_id == EMPTY_OBJECT_ID

    def test_wrong_id_is_refused(self) -> None:
        with pytest.raises(Invalid) as caught:
            parse_snapshot({**snapshot_record({"a": HELLO}, NOON), "snapshot_id": SNAPSHOT}, "snapshots[7]")
        assert caught.value.field == "snapshots[7].snapshot_id"

    @pytest.mark.parametrize("created_at", [None, 5, "x" * 65, "a\0", "é"])
    def test_bad_created_at_is_refused(self, created_at: object) -> None:
        with pytest.raises(Invalid, match="created_at"):
            parse_snapshot({**snapshot_record({"a": HELLO}, NOON), "created_at": created_at})

    @pytest.mark.parametrize("value", [None, [], {}, {"snapshot_id": SNAPSHOT}, {"manifest": {}}])
    def test_incomplete_record_is_refused(self, value: Any) -> None:
        with pytest.raises(Invalid):
            parse_snapshot(value)

    def test_bad_path_is_refused_though_the_id_is_right(self) -> None:
        manifest = {"../x": HELLO}
        with pytest.raises(Invalid, match="manifest"):
            parse_snapshot({"snapshot_id": snapshot_id(manifest), "manifest": manifest, "created_at": NOON})


class TestBranch:
    @pytest.mark.parametrize(
        "name", ["main", "feature/x", "-x", "@", "HEAD", "x.lock", "a b", "~", "ünï", "a.b/c.d", "x" * 255]
    )
    def test_good_name_is_returned(self, name: str) -> None:
        assert check_branch(name) == name

    @pytest.mark.parametrize(
        "name",
        [
            "",
            "x" * 256,
            "a\\b",
            "a\x00",
            "a\n",
            "a\r",
            "a\t",
            ".a",
            "a.",
            "a..b",
            "/a",
            "a/",
            "a//b",
            "a\x1b",
            "a\x7f",
            "a\x85",
            "\udc80",
            None,
            5,
            b"main",
        ],
    )
    def test_bad_name_is_refused(self, name: object) -> None:
        with pytest.raises(Invalid) as caught:
            check_branch(name)
        assert caught.value.field == "branch"
