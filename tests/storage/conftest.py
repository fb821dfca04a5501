"""The stores that one suite runs over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from moto import mock_aws

from storage import FaultyStore, MemoryStore, Prefixed, S3Settings, S3Store, Store

MOTO = S3Settings(
    endpoint_url="https://s3.us-east-1.amazonaws.com",  # moto answers for it in this process
    public_endpoint_url=None,
    region="us-east-1",
    bucket="packhouse",
    access_key="anybody",
    secret_key="any secret",
)


@pytest.fixture
def moto_store() -> Iterator[S3Store]:
    """A store on moto, empty. Moto checks neither rights nor checksums."""
    store = S3Store(MOTO)
    with mock_aws():
        store.ensure_bucket()
        yield store
    store.close()


@pytest.fixture(
    params=["memory", "prefixed", "faulty", "moto", pytest.param("seaweedfs", marks=pytest.mark.integration)]
)
def store(request: pytest.FixtureRequest) -> Store:
    """Every store there is, empty."""
    kind: str = request.param
    if kind == "memory":
        return MemoryStore()
    if kind == "prefixed":
        return Prefixed(MemoryStore(), "archive/")
    if kind == "faulty":
        return FaultyStore(MemoryStore(), rate=0)
    found: Store = request.getfixturevalue("moto_store" if kind == "moto" else "s3_store")
    return found
