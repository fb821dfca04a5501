"""What a hub says of its object store at the start."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from hub.first_look import first_look
from storage import FaultyStore, MemoryStore, S3Settings, S3Store
from storage.faults import Fault

WAIT_SECONDS = 20


@pytest.mark.integration
@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"secret_key": "wrong"}, "SignatureDoesNotMatch"),
        ({"access_key": "wrong"}, "InvalidAccessKeyId"),
        ({"bucket": "no-such-bucket"}, "NoSuchBucket"),
    ],
)
def test_a_store_that_does_not_let_the_hub_in_is_named_with_the_settings(
    s3_settings: S3Settings, caplog: pytest.LogCaptureFixture, wrong: dict[str, str], reason: str
) -> None:
    with closing(S3Store(replace(s3_settings, **wrong))) as store:
        first_look(store).join(WAIT_SECONDS)
    (said,) = caplog.messages
    assert said.startswith(f"the object store does not let the hub in (the store refused: {reason}): look at S3_")
    assert s3_settings.secret_key not in said


def test_a_store_that_is_away_is_said_to_be_and_one_that_is_there_is_not_mentioned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first_look(FaultyStore(MemoryStore(), script=[("list", Fault.REFUSED)])).join(WAIT_SECONDS)
    (said,) = caplog.messages
    assert said.startswith("the object store does not answer yet")
    caplog.clear()
    first_look(MemoryStore()).join(WAIT_SECONDS)
    assert caplog.messages == []
