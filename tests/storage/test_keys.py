"""Which keys are keys."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import InvalidKey, StorageError
from storage.keys import KEY_LENGTH_MAX, SEGMENT_LENGTH_MAX, check_key, check_prefix

SEGMENT = st.from_regex(r"[0-9A-Za-z_=-][0-9A-Za-z_.=-]{0,20}", fullmatch=True)


@given(st.lists(SEGMENT, min_size=1, max_size=8).map("/".join))
def test_joined_segments_are_a_key_and_so_is_every_beginning_a_prefix(key: str) -> None:
    assert check_key(key) == key
    for end in range(len(key) + 1):
        assert check_prefix(key[:end]) == key[:end]


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("", "must not be empty"),
        ("a/", "must not end with"),
        ("/a", "no empty segment"),
        ("a//b", "no empty segment"),
        (".", "must not begin with"),
        ("a/../b", "must not begin with"),
        (".uploads/x", "must not begin with"),
        ("a b", "not of ' '"),
        ("a\\b", "not of"),
        ("a\x00", r"not of '\\x00'"),
        ("a\n", r"not of '\\n'"),
        ("schlüssel", r"not of '\\xfc'"),
        ("a%2Fb", "not of '%'"),
        ("a" * (SEGMENT_LENGTH_MAX + 1), "a segment has at most 255"),
        ("a/" * (KEY_LENGTH_MAX // 2) + "a", "a key has at most 900"),
    ],
)
def test_refusal_says_why(key: str, reason: str) -> None:
    with pytest.raises(InvalidKey, match=reason):
        check_key(key)


def test_refusal_of_a_long_key_is_short() -> None:
    with pytest.raises(InvalidKey) as refusal:
        check_key("a" * 100_000)
    assert len(str(refusal.value)) < 200


def test_invalid_key_is_a_value_error_of_storage() -> None:
    assert issubclass(InvalidKey, ValueError)
    assert issubclass(InvalidKey, StorageError)


def test_errors_survive_pickling() -> None:
    error = pickle.loads(pickle.dumps(InvalidKey("a/", "a key must not end with «/»")))
    assert str(error) == "a/: a key must not end with «/»"
