"""The command `schedules`: what runs periodically, when it ran last and runs next, and a whole year of it."""

from __future__ import annotations

import heapq
from datetime import datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import click

from tasks.console import Load, as_json_option, looking

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tasks.app import App
    from tasks.periodic import Periodic

YEAR_MIN, YEAR_MAX = 1971, 2999


def schedules_command(load: Load) -> click.Command:
    """Make the command `schedules`."""

    @click.command("schedules", short_help="List what runs periodically, and when.")
    @click.option(
        "--year",
        type=click.IntRange(YEAR_MIN, YEAR_MAX),
        help="Print every time in this year at which a job will be made, on the wall clock of its schedule.",
    )
    @click.option("--name", metavar="NAME", help="Only this schedule.")
    @as_json_option
    def schedules(year: int | None, name: str | None, as_json: bool) -> None:
        """List the schedules of periodic tasks: their rhythm, the last nominal time, the next.

        `last_nominal_at` is empty until a worker has seen the schedule. `skipped` counts nominal times that got
        no job of their own because no worker ran, see `missed`.
        """
        from tasks import render

        app = load()
        chosen = _choose(app, name)
        if year is not None:
            rows = _year(chosen, year)
            if as_json:
                render.print_json(list(rows))
            else:
                for row in rows:
                    click.echo(
                        f"{row['local']:%a %Y-%m-%d %H:%M:%S %Z}  {row['nominal_at']:%Y-%m-%dT%H:%M:%SZ}  {row['name']}"
                    )
            return
        listed = _list(load, chosen)
        if as_json:
            render.print_json(listed)
        elif listed:
            render.print_table(listed)
        else:
            click.echo("no schedules")

    return schedules


def _choose(app: App, name: str | None) -> list[Periodic]:
    if name is not None and name not in app.schedules:
        known = f"; there are {', '.join(sorted(app.schedules))}" if app.schedules else ""
        raise click.ClickException(f"there is no schedule {name}{known}")
    return [schedule for schedule in app.schedules.values() if name in {None, schedule.name}]


def _list(load: Load, schedules: Sequence[Periodic]) -> list[dict[str, Any]]:
    from tasks.periodic import read_schedules

    with looking(load) as conn:
        rows = {(row.name, row.rhythm): row for row in read_schedules(conn, schedules)}
    listed = []
    for schedule in schedules:
        row = rows.get((schedule.name, schedule.rhythm.text))
        listed.append(
            {
                "name": schedule.name,
                "task": schedule.task.name,
                "rhythm": schedule.rhythm.text,
                "missed": schedule.missed,
                "last_nominal_at": None if row is None else row.last_nominal_at,
                "next_nominal_at": None if row is None else next(schedule.fires(row.last_nominal_at)),
                "skipped": 0 if row is None else row.skipped,
            }
        )
    return listed


def _year(schedules: Sequence[Periodic], year: int) -> Iterator[dict[str, Any]]:
    """Every fire in the year of the schedule's own zone, in order."""

    def fires(schedule: Periodic) -> Iterator[tuple[datetime, str, ZoneInfo]]:
        zone = ZoneInfo(schedule.rhythm.tz)
        first, end = datetime(year, 1, 1, tzinfo=zone), datetime(year + 1, 1, 1, tzinfo=zone)
        for fire in takewhile(lambda at: at < end, schedule.fires(first - timedelta(microseconds=1))):
            yield fire, schedule.name, zone

    for fire, name, zone in heapq.merge(*map(fires, schedules), key=lambda found: found[:2]):
        yield {"name": name, "nominal_at": fire, "local": fire.astimezone(zone)}
