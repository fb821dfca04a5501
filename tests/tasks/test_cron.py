from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, takewhile
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tasks.cron import Cron, Every, Rhythm, crontab

BERLIN, PACIFIC = "Europe/Berlin", "US/Pacific"


def year(expression: str, tz: str, of: int = 2027) -> list[datetime]:
    zone = ZoneInfo(tz)
    start, end = datetime(of, 1, 1, tzinfo=zone), datetime(of + 1, 1, 1, tzinfo=zone)
    fires = Cron(expression, tz).fires(start - timedelta(microseconds=1))
    return list(takewhile(lambda fire: fire < end, fires))


def first(rhythm: Rhythm, after: datetime, count: int = 1) -> list[str]:
    return [fire.strftime("%Y-%m-%d %H:%M:%S") for fire in islice(rhythm.fires(after), count)]


# Berlin 2027: on 28 March 02:00 becomes 03:00 (01:00 UTC), on 31 October 03:00 becomes 02:00 (01:00 UTC).
# Pacific 2027: on 14 March 02:00 becomes 03:00 (10:00 UTC), on 7 November 02:00 becomes 01:00 (09:00 UTC).
# Cairo: on 30 April 00:00 becomes 01:00 (29 April 22:00 UTC): midnight itself does not exist.
DST = [
    # expression, zone, local day, what fires on that day, in UTC
    ("30 2 * * *", BERLIN, "2027-03-28", ["01:00"]),
    ("30 2 * * *", BERLIN, "2027-10-31", ["00:30"]),
    ("30 2 * * *", BERLIN, "2027-07-01", ["00:30"]),
    ("30 2 * * *", PACIFIC, "2027-03-14", ["10:00"]),
    ("30 1 * * *", PACIFIC, "2027-11-07", ["08:30"]),
    ("15,45 2 * * *", BERLIN, "2027-03-28", ["01:00"]),
    ("0 2,3 * * *", BERLIN, "2027-03-28", ["01:00"]),
    ("0 1-4 * * *", BERLIN, "2027-03-28", ["00:00", "01:00", "02:00"]),
    ("0 1-4 * * *", BERLIN, "2027-10-31", ["23:00", "00:00", "02:00", "03:00"]),
    ("0 0 * * *", BERLIN, "2027-03-28", ["23:00"]),
    ("0 0 * * *", BERLIN, "2027-10-31", ["22:00"]),
    ("0 0 * * *", "Africa/Cairo", "2027-04-30", ["22:00"]),
]


@pytest.mark.parametrize(("expression", "tz", "day", "expected"), DST)
def test_schedule_across_a_change_of_the_clock(expression: str, tz: str, day: str, expected: list[str]) -> None:
    zone = ZoneInfo(tz)
    fires = [fire for fire in year(expression, tz) if fire.astimezone(zone).date().isoformat() == day]
    assert [fire.strftime("%H:%M") for fire in fires] == expected


@pytest.mark.parametrize(
    ("expression", "tz", "count"),
    [
        ("30 2 * * *", BERLIN, 365),
        ("30 2 * * *", PACIFIC, 365),
        ("0 0 * * *", BERLIN, 365),
        ("0 0 * * *", "Africa/Cairo", 365),
        # One hour of the wall clock is skipped, and the repeated one counts once.
        ("0 * * * *", BERLIN, 365 * 24 - 1),
        ("0 * * * *", PACIFIC, 365 * 24 - 1),
        ("0 * * * *", "UTC", 365 * 24),
        ("*/5 * * * *", BERLIN, 12 * (365 * 24 - 1)),
    ],
)
def test_a_year_of_fires(expression: str, tz: str, count: int) -> None:
    """Case 30: each nominal time once, in order, none skipped."""
    fires = year(expression, tz)
    assert len(fires) == len(set(fires)) == count
    assert fires == sorted(fires)


def test_day_that_a_country_skipped_fires_once_after_it() -> None:
    assert first(Cron("0 12 * * *", "Pacific/Apia"), datetime(2011, 12, 30, tzinfo=UTC), 2) == [
        "2011-12-30 10:00:00",
        "2011-12-30 22:00:00",
    ]


def test_fires_do_not_depend_on_where_one_begins_to_count() -> None:
    every_five = Cron("*/5 * * * *", BERLIN)
    whole = list(islice(every_five.fires(datetime(2027, 10, 30, 22, tzinfo=UTC)), 60))
    for before, after in pairwise(whole):
        for start in (before, after - timedelta(microseconds=1)):
            assert next(every_five.fires(start)) == after


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 9 * * mon-fri", ["2027-01-01 09:00:00", "2027-01-04 09:00:00"]),
        ("0 0 * * 7", ["2027-01-03 00:00:00", "2027-01-10 00:00:00"]),
        ("0 0 13 * 5", ["2027-01-08 00:00:00", "2027-01-13 00:00:00"]),
        ("0 0 29 2 *", ["2028-02-29 00:00:00", "2032-02-29 00:00:00"]),
        ("5-10/5,59 */12 1 JAN *", ["2027-01-01 00:05:00", "2027-01-01 00:10:00"]),
        ("0 0 31 * *", ["2027-01-31 00:00:00", "2027-03-31 00:00:00"]),
    ],
)
def test_fields_of_cron(expression: str, expected: list[str]) -> None:
    assert first(Cron(expression), datetime(2027, 1, 1, tzinfo=UTC), 2) == expected


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("* * * *", "five fields"),
        ("@daily", "five fields"),
        (None, "five fields"),
        ("60 * * * *", "minute must be from 0 to 59, not '60'"),
        ("* 24 * * *", "hour must be"),
        ("* * 0 * *", "day of month must be"),
        ("* * * foo *", "month must be from 1 to 12 or jan to dec"),
        ("* * * * 8", "day of week must be"),
        ("*/0 * * * *", "step of minute"),
        ("5/3 * * * *", "a step needs a range"),
        ("5-3 * * * *", "runs backwards"),
        ("1,,2 * * * *", "minute must be"),
        ("٣ * * * *", "minute must be"),
        ("0 0 31 2,4 *", "its months never have"),
    ],
)
def test_wrong_cron_expression_is_refused_by_field(expression: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Cron(expression)


@pytest.mark.parametrize("tz", ["Mars/Olympus", "../etc/passwd", "Europe", "", None])
def test_unknown_time_zone_is_refused(tz: Any) -> None:
    with pytest.raises(ValueError, match="tz: there is no time zone"):
        Cron("* * * * *", tz)


def test_every_counts_elapsed_time_from_one_origin() -> None:
    start = datetime(2027, 10, 31, 0, 58, 10, tzinfo=UTC)
    assert first(Every(90), start, 3) == ["2027-10-31 00:58:30", "2027-10-31 01:00:00", "2027-10-31 01:01:30"]
    assert first(Every(90), datetime(2027, 10, 31, 0, 58, 30, tzinfo=UTC)) == ["2027-10-31 01:00:00"]


@pytest.mark.parametrize("seconds", [0, 0.5, -1, True, "60", float("nan"), float("inf"), 1e9])
def test_wrong_interval_is_refused(seconds: Any) -> None:
    with pytest.raises(ValueError, match="every: must be"):
        Every(seconds)


def test_crontab_is_written_as_celery_does() -> None:
    assert crontab() == "* * * * *"
    assert crontab(hour=7, minute=30, day_of_week=1) == "30 7 * * 1"
    assert crontab(0, 0, month_of_year="*/3", day_of_month="2-7") == "0 0 2-7 */3 *"
    with pytest.raises(ValueError, match="not both"):
        crontab(day_of_week="mon", day_of_month=1)
