"""The small pure rules: retry delays, dedup keys, error codes, ids."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.dedup import Dedup
from tasks.errors import PayloadError, Retry, error_code
from tasks.ids import new_job_id, new_job_ids
from tasks.payload import ERROR_CHARACTERS_MAX, clean_error
from tasks.retry import Exponential, Fixed, Schedule


def test_exponential_doubles_up_to_its_cap() -> None:
    assert Exponential(base=1, factor=2, cap=10).delays(6) == [1, 2, 4, 8, 10]


def test_exponential_starts_no_higher_than_its_cap() -> None:
    assert Exponential(base=100, cap=10).delays(3) == [10, 10]


def test_only_exponential_spreads_and_it_can_be_told_not_to() -> None:
    policies = [Exponential(), Exponential(jitter=False), Fixed(1), Schedule([1])]
    assert [policy.spread for policy in policies] == [0.25, 0.0, 0.0, 0.0]


def test_fixed_is_the_same_each_time() -> None:
    assert Fixed(3).delays(4) == [3, 3, 3]


def test_a_schedule_is_followed_and_its_last_delay_goes_on() -> None:
    assert Schedule([1, 5]).delays(5) == [1, 5, 5, 5]
    assert Schedule([1, 5, 9]).delays(2) == [1]


@pytest.mark.parametrize("policy", [Exponential(), Fixed(1), Schedule([1, 2])])
@pytest.mark.parametrize("attempts_max", [1, 2, 25])
def test_a_policy_never_has_nothing_to_say(policy: Fixed | Exponential, attempts_max: int) -> None:
    assert len(policy.delays(attempts_max)) == max(1, attempts_max - 1)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), True, "1", 1e12])
def test_a_delay_that_makes_no_sense_is_refused(seconds: float) -> None:
    with pytest.raises(PayloadError):
        Fixed(seconds)
    with pytest.raises(PayloadError):
        Schedule([1, seconds])
    with pytest.raises(PayloadError):
        Exponential(base=seconds)


@pytest.mark.parametrize("delays", [[], 5, "5"])
def test_a_schedule_that_is_no_list_of_delays_is_refused(delays: list[float]) -> None:
    with pytest.raises(PayloadError, match="at least one number of seconds"):
        Schedule(delays)


PARTS = st.one_of(st.text(min_size=1), st.integers())


@given(st.text(), st.text(), PARTS, PARTS, PARTS, PARTS)
def test_two_keys_are_equal_only_if_every_component_is(
    scope: str, other_scope: str, a: str | int, b: str | int, c: str | int, d: str | int
) -> None:
    dedup = Dedup(by=("x", "y"))
    same = dedup.key(scope, {"x": a, "y": b}) == dedup.key(other_scope, {"x": c, "y": d})
    assert same == ((scope, a, b) == (other_scope, c, d) and type(a) is type(c) and type(b) is type(d))


@pytest.mark.parametrize("kwargs", [{}, {"mpack_key": ""}, {"mpack_key": None}, {"mpack_key": ["a"]}, {"other": "a"}])
def test_a_missing_component_is_refused_and_never_skipped(kwargs: dict[str, object]) -> None:
    with pytest.raises(PayloadError, match=r"kwargs\.mpack_key"):
        Dedup(by=("mpack_key",)).key("repo", kwargs)


def test_one_per_scope_needs_a_scope() -> None:
    with pytest.raises(PayloadError, match="scope"):
        Dedup().key("", {})


def test_the_key_reads_the_named_arguments_only() -> None:
    dedup = Dedup(by=("mpack_key",))
    assert dedup.key("r", {"mpack_key": "m", "head": "a"}) == dedup.key("r", {"mpack_key": "m", "head": "b"})


def test_dedup_refuses_options_that_mean_nothing() -> None:
    with pytest.raises(PayloadError, match="by"):
        Dedup(by="mpack_key")  # type: ignore[arg-type]
    with pytest.raises(PayloadError, match="mode"):
        Dedup(mode="never")  # type: ignore[arg-type]


class FetchNotIndexed(Exception):
    pass


class HTTPError2x(Exception):
    pass


class _(Exception):  # noqa: N801
    pass


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (FetchNotIndexed(), "FETCH_NOT_INDEXED"),
        (ValueError(), "VALUE_ERROR"),
        (HTTPError2x(), "HTTP_ERROR2X"),
        (OSError(), "OS_ERROR"),
        (type("Überfall", (Exception,), {})(), "BERFALL"),
        (_(), "ERROR"),
        (Retry(), "RETRY"),
        (type("A" * 100, (Exception,), {})(), "A" * 64),
    ],
)
def test_an_error_code_comes_from_the_class(error: Exception, code: str) -> None:
    assert error_code(error) == code


@given(st.text(st.characters(), max_size=5000))
def test_any_error_text_becomes_storable(text: str) -> None:
    cleaned = clean_error(text)
    assert len(cleaned) <= ERROR_CHARACTERS_MAX
    assert "\x00" not in cleaned
    cleaned.encode()


def test_ids_are_version_7_and_ordered_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    instants = iter(range(1_900_000_000_000_000_000, 1_900_000_000_000_050_000, 1000))
    monkeypatch.setattr("tasks.ids.time.time_ns", lambda: next(instants))
    ids = [new_job_id() for _ in range(50)]
    assert {made.version for made in ids} == {7}
    assert {made.variant for made in ids} == {"specified in RFC 4122"}
    assert ids == sorted(ids)


def test_ids_of_one_call_are_distinct_and_ordered() -> None:
    ids = list(islice(new_job_ids(), 5000))
    assert len(set(ids)) == 5000
    assert [made.int >> 64 for made in ids] == sorted(made.int >> 64 for made in ids)
    assert {(made.version, made.variant) for made in ids} == {(7, "specified in RFC 4122")}
