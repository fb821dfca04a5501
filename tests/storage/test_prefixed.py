"""Roles share a bucket and nothing else."""

from __future__ import annotations

from datetime import timedelta

import pytest

from storage import InvalidKey, MemoryStore, NotFound, Prefixed, S3Settings, open_store

SETTINGS = S3Settings("http://127.0.0.1:1", None, "us-east-1", "packhouse", "access", "secret")


def test_roles_do_not_see_each_other() -> None:
    bucket = MemoryStore()
    archive, cache = Prefixed(bucket, "archive/"), Prefixed(bucket, "cache/")
    archive.put("k", b"truth")
    cache.put("k", b"copy")
    cache.delete("k")
    assert [stat.key for stat in archive.list()] == ["k"]
    assert [stat.key for stat in cache.list()] == []
    assert [stat.key for stat in bucket.list()] == ["archive/k"]


def test_error_names_the_whole_key() -> None:
    with pytest.raises(NotFound, match="archive/k"):
        Prefixed(MemoryStore(), "archive/").head("k")


def test_role_with_a_longer_name_is_another_role() -> None:
    bucket = MemoryStore()
    Prefixed(bucket, "archive_old/").put("k", b"x")
    assert list(Prefixed(bucket, "archive/").list()) == []


@pytest.mark.parametrize("prefix", ["", "/", "archive", "/archive/", "a//", "../"])
def test_bad_prefix_is_refused(prefix: str) -> None:
    with pytest.raises(InvalidKey):
        Prefixed(MemoryStore(), prefix)


def test_open_store_gives_the_role_s_part_of_the_bucket() -> None:
    upload = open_store(SETTINGS, role="cache").presign_put("k", expires=timedelta(minutes=1))
    assert upload is not None
    assert upload.url.startswith("http://127.0.0.1:1/packhouse/cache/k?")
