"""When a schedule fires: cron expressions and plain intervals. Pure: no clock, no database.

A cron schedule speaks of the clock on the wall of its time zone. Where that clock is moved:

- a time that does not exist (skipped in spring) fires once, at the first instant after the gap;
- a time that exists twice (repeated in autumn) fires once, at the first;
- times that come to the same instant are one.

So «every five minutes» by cron is silent for the repeated hour. `Every` counts elapsed time and knows no wall clock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Protocol
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from collections.abc import Iterator

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EVERY_SECONDS_MAX = 366 * 86400.0


class Rhythm(Protocol):
    """Something that says when to fire next."""

    @property
    def text(self) -> str:
        """What it was made from, for people and to tell one rhythm from another."""

    @property
    def tz(self) -> str:
        """The time zone of its wall clock."""

    def fires(self, after: datetime) -> Iterator[datetime]:
        """Every nominal time later than `after`, in order, in UTC, without end."""


@dataclass(frozen=True, slots=True)
class Every:
    """Every so many seconds of elapsed time, counted from 1970-01-01 UTC, so that all schedulers agree."""

    seconds: float

    def __post_init__(self) -> None:
        """Refuse what is no interval. Raises ValueError."""
        given = self.seconds
        if isinstance(given, bool) or not isinstance(given, int | float) or not 1 <= given <= EVERY_SECONDS_MAX:
            raise ValueError(f"every: must be a number of seconds from 1 to {EVERY_SECONDS_MAX:.0f}, not {given!r}")

    @property
    def text(self) -> str:
        """For people."""
        return f"every {self.seconds:g} s"

    @property
    def tz(self) -> str:
        """It has no wall clock."""
        return "UTC"

    def fires(self, after: datetime) -> Iterator[datetime]:
        """Every nominal time later than `after`, in order, in UTC, without end."""
        step = timedelta(seconds=self.seconds)
        number = (after - EPOCH) // step
        while True:
            number += 1
            yield EPOCH + number * step


def _number(name: str, word: str, low: int, high: int, names: tuple[str, ...]) -> int:
    if word.lower() in names:
        return names.index(word.lower()) + low
    if not re.fullmatch(r"[0-9]{1,2}", word) or not low <= int(word) <= high:
        alternatives = f" or {names[0]} to {names[-1]}" if names else ""
        raise ValueError(f"cron: {name} must be from {low} to {high}{alternatives}, not {word!r}")
    return int(word)


def _field(name: str, text: str, low: int, high: int, names: tuple[str, ...] = ()) -> frozenset[int]:
    """Read one field: `*`, `5`, `1-5`, `*/15`, `8-18/2`, and lists of these."""
    values: set[int] = set()
    for part in text.split(","):
        span, slash, step_text = part.partition("/")
        if slash and (not re.fullmatch(r"[0-9]{1,2}", step_text) or not 1 <= int(step_text) <= high - low + 1):
            raise ValueError(f"cron: the step of {name} must be from 1 to {high - low + 1}, not {step_text!r}")
        if span == "*":
            first, last = low, high
        else:
            first_text, dash, last_text = span.partition("-")
            if slash and not dash:
                raise ValueError(f"cron: {name} {part!r}: a step needs a range, e.g. {span}-{high}/{step_text}")
            first = _number(name, first_text, low, high, names)
            last = _number(name, last_text, low, high, names) if dash else first
            if last < first:
                raise ValueError(f"cron: {name} {part!r} runs backwards")
        values.update(range(first, last + 1, int(step_text) if slash else 1))
    return frozenset(values)


@dataclass(frozen=True, slots=True)
class Cron:
    """Five fields: minute, hour, day of month, month, day of week (0 and 7 are Sunday); `tz` as in IANA's list.

    When both days are restricted, a day fires that matches either, as in cron. Raises ValueError naming the field.
    """

    expression: str
    tz: str = "UTC"
    _minutes: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _hours: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _days: frozenset[int] = field(init=False, repr=False, compare=False)
    _months: frozenset[int] = field(init=False, repr=False, compare=False)
    _weekdays: frozenset[int] = field(init=False, repr=False, compare=False)
    _either_day: bool = field(init=False, repr=False, compare=False)
    _zone: ZoneInfo = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Read the expression."""
        parts = self.expression.split() if isinstance(self.expression, str) else []
        if len(parts) != 5:
            raise ValueError(f"cron: write five fields, e.g. '30 2 * * *', not {self.expression!r}")
        minute, hour, day, month, weekday = parts
        put = object.__setattr__
        put(self, "_minutes", tuple(sorted(_field("minute", minute, 0, 59))))
        put(self, "_hours", tuple(sorted(_field("hour", hour, 0, 23))))
        put(self, "_days", _field("day of month", day, 1, 31))
        put(self, "_months", _field("month", month, 1, 12, _MONTHS))
        put(self, "_weekdays", frozenset(number % 7 for number in _field("day of week", weekday, 0, 7, _DAYS)))
        put(self, "_either_day", day[0] != "*" and weekday[0] != "*")
        put(self, "_zone", _zone(self.tz))
        if not self._either_day and all(min(self._days) > _longest(month) for month in self._months):
            raise ValueError(f"cron: {self.expression!r} names a day that its months never have")

    @property
    def text(self) -> str:
        """For people."""
        return f"cron {' '.join(self.expression.split())} {self.tz}"

    def fires(self, after: datetime) -> Iterator[datetime]:
        """Every nominal time later than `after`, in order, in UTC, without end."""
        last = after
        # Wall times up to this one have all fired already, whatever the clock on the wall did.
        for local in self._local_times(after.astimezone(self._zone).replace(tzinfo=None)):
            fire = _instant(local, self._zone)
            if fire > last:
                last = fire
                yield fire

    def _local_times(self, wall: datetime) -> Iterator[datetime]:
        """Wall times later than `wall`; naive on purpose: the wall's own reckoning."""
        day = wall.date()
        while True:
            if self._fires_on(day):
                for hour in self._hours:
                    if day > wall.date() or hour >= wall.hour:
                        times = (datetime(day.year, day.month, day.day, hour, minute) for minute in self._minutes)  # noqa: DTZ001
                        yield from (local for local in times if local > wall)
            day += timedelta(days=1)

    def _fires_on(self, day: date) -> bool:
        if day.month not in self._months:
            return False
        by_month, by_week = day.day in self._days, day.isoweekday() % 7 in self._weekdays
        return by_month or by_week if self._either_day else by_month and by_week


def crontab(
    minute: str | int = "*",
    hour: str | int = "*",
    day_of_week: str | int = "*",
    day_of_month: str | int = "*",
    month_of_year: str | int = "*",
) -> str:
    """Write Celery's `crontab(…)` as a cron expression.

    Raises ValueError when both days are restricted: Celery fires when both match, cron when either does.
    """
    if str(day_of_week)[0] != "*" and str(day_of_month)[0] != "*":
        raise ValueError(
            "crontab: give day_of_week or day_of_month, not both: Celery and cron differ in what that means"
        )
    return f"{minute} {hour} {day_of_month} {month_of_year} {day_of_week}".replace(", ", ",")


def _longest(month: int) -> int:
    return 29 if month == 2 else 30 if month in {4, 6, 9, 11} else 31


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    # The library raises these for unknown names, for odd ones, and for names of folders.
    except (KeyError, ValueError, OSError, TypeError):
        raise ValueError(f"tz: there is no time zone {name!r}; write e.g. 'Europe/Berlin'") from None


def _instant(local: datetime, zone: ZoneInfo) -> datetime:
    """The instant at which the wall clock first shows `local`, or the first one after the gap that swallows it."""
    aware = local.replace(tzinfo=zone, fold=0)
    first = aware.astimezone(UTC)
    if first.astimezone(zone).replace(tzinfo=None) == local:
        return first
    # In a gap fold=0 reckons with the offset before it, which ends up behind the change, fold=1 before it.
    before, behind = aware.replace(fold=1).astimezone(UTC), first
    offset = before.astimezone(zone).utcoffset()
    while behind - before > timedelta(seconds=1):
        middle = (before + (behind - before) / 2).replace(microsecond=0)
        if middle.astimezone(zone).utcoffset() == offset:
            before = middle
        else:
            behind = middle
    return behind
