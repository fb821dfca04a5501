"""What may be stored: decided on the JSON text where that is enough, and the same as on each part."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tasks.errors import PayloadError
from tasks.payload import DEPTH_MAX, INT_BITS_MAX, PAYLOAD_BYTES_MAX, encode, encode_call, encode_calls

LONGEST = (1 << INT_BITS_MAX) - 1
TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=5) | st.sampled_from(
    ["\\u0000", "{", "[{", '"', "é", "\x7f", "😀"]
)
SOUND = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
    | st.just(LONGEST),
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(TEXT, parts, max_size=4),
    max_leaves=12,
)
UNSOUND: list[Any] = [
    *(
        "a\0",
        "\ud800",
        float("nan"),
        float("-inf"),
        LONGEST + 1,
        -LONGEST - 1,
        b"",
        {1},
        object(),
        MappingProxyType({}),
    ),
    *({1: 2}, {None: 1}, {True: 1}, {1.5: 1}, {(): 1}, {"\0": 1}, {"\udfff": 1}, {"a": {"b": {3: 4}}}),
]


def nested(value: object, levels: int) -> object:
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


@given(SOUND)
@example(nested(1, DEPTH_MAX))
@example([[]] * 100)
@example([{"a": {}}] * 100)
@example("x" * (PAYLOAD_BYTES_MAX - 2))
def test_what_is_json_and_can_be_stored_comes_back_as_it_was(value: Any) -> None:
    assert json.loads(encode("x", value)) == value


@given(SOUND, st.sampled_from(UNSOUND), st.integers(0, 3))
def test_what_cannot_be_stored_is_refused_wherever_it_is(sound: Any, unsound: Any, place: int) -> None:
    value = (
        [sound, unsound],
        {"a": sound, "b": unsound},
        {"args": [unsound], "kwargs": {}},
        {"args": [{"a": unsound}]},
    )
    with pytest.raises(PayloadError) as caught:
        encode("x", value[place])
    assert caught.value.field.startswith("x")


CALL = st.fixed_dictionaries({"args": st.lists(SOUND, max_size=2), "kwargs": st.dictionaries(TEXT, SOUND, max_size=2)})
PLAIN: list[dict[str, Any]] = [{"args": [n, "é"], "kwargs": {"n": n}} for n in range(50)]


@given(st.lists(CALL, max_size=30))
@example(PLAIN)
@example([{"args": ["x" * (PAYLOAD_BYTES_MAX - 30)], "kwargs": {}}] * 20)
def test_many_calls_are_written_as_each_would_be(calls: list[Any]) -> None:
    assert encode_calls(calls) == "[" + ",".join(map(encode_call, calls)) + "]"


@pytest.mark.parametrize("place", [0, 19, 20, 49])
@pytest.mark.parametrize(
    "wrong",
    [
        *({"args": [value], "kwargs": {}} for value in UNSOUND),
        *({"args": [], "kwargs": {"a": value}} for value in UNSOUND),
        *({"args": [], "kwargs": value} for value in UNSOUND[-8:]),
        *({"args": value, "kwargs": []} for value in UNSOUND[-8:]),
        {"args": [nested(1, DEPTH_MAX - 1)], "kwargs": {}},
        {"args": ["x" * PAYLOAD_BYTES_MAX], "kwargs": {}},
        {"args": [LONGEST + 1, 1], "kwargs": {}},
        *({"args": []}, {"args": [], "kwargs": {}, "more": 1}, {"args": [], "kwarg": {}}, {}, None, 5, [], "args"),
    ],
)
def test_the_one_wrong_call_of_many_is_refused_as_it_would_be_alone(wrong: Any, place: int) -> None:
    with pytest.raises(PayloadError) as alone:
        encode_call(wrong)
    with pytest.raises(PayloadError) as among:
        encode_calls([*PLAIN[:place], wrong, *PLAIN[place:]])
    assert str(among.value) == str(alone.value)


def circle() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize("value", [nested(1, DEPTH_MAX + 1), nested([], 100_000), circle()])
def test_what_is_nested_too_deep_is_refused(value: object) -> None:
    with pytest.raises(PayloadError, match="nested"):
        encode("x", value)


def test_the_part_that_is_wrong_is_named() -> None:
    with pytest.raises(PayloadError) as caught:
        encode("", {"args": [1, {"a": [{"b": 1, 2: 3}]}], "kwargs": {}})
    assert caught.value.field == "args[1].a[0]"
