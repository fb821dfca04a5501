"""`packhouse fsck`: prove that the hub has what it says, and that it is right."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from hub.cli.database import as_json, explained, fail

if TYPE_CHECKING:
    from hub.fsck.findings import Finding
    from hub.wire.context import Hub


@click.command()
@click.argument("path", metavar="[OWNER/SLUG]", required=False)
@click.option("--repair", is_flag=True, help="Queue the jobs that mend, and set damaged packs aside.")
@click.option("--no-bytes", is_flag=True, help="Do not read the packs: only see that each is there, with its size.")
@as_json
def fsck(path: str | None, *, repair: bool, no_bytes: bool, as_json: bool) -> None:
    """Check all repositories, or one: every commit, snapshot, object, pack, index row and cached clone.

    Prints each finding with what it means. Exit status: 0 when all is right, 1 with findings or when it could not be
    checked. Safe while the hub is in use.
    """
    from hub.app import create_app  # Flask and the models: not for `--help`

    found = cast("Hub", create_app().extensions["packhouse"])
    with explained():
        findings, checked = _check(found, path, with_bytes=not no_bytes)
        said = [_mended(found, finding, repair=repair) for finding in findings]
    if as_json:
        click.echo(json.dumps({"repositories": checked, "findings": said}))
    else:
        for item in said:
            mended = f" [{item['repaired']}]" if item.get("repaired") else ""
            click.echo(f"{item['repository']}: {item['finding']} {item['subject']}: {item['detail']}.{mended}")
            click.echo(f"    {item['meaning']}.")
        noun = "repository" if checked == 1 else "repositories"
        click.echo(f"{checked} {noun} checked, {len(said)} finding{'' if len(said) == 1 else 's'}.")
    if said:
        sys.exit(1)


def _check(found: Hub, path: str | None, *, with_bytes: bool) -> tuple[list[Finding], int]:
    from hub.fsck.check import Checked, check_repository, pack_bytes, repositories

    with found.services.sessions() as session:
        chosen = repositories(session, path)
        total = pack_bytes(session, [repository_id for repository_id, _ in chosen])
    if path is not None and not chosen:
        fail(f"There is no repository {path}.")
    findings: list[Finding] = []
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("Checking", total=total)
        advance: Callable[[int], None] = lambda size: progress.advance(bar, size)  # noqa: E731  (typed, and one line)
        for repository_id, name in chosen:
            progress.update(bar, description=name)
            checked = Checked(found.services, repository_id, name, with_bytes, advance)
            findings += check_repository(checked)
    return findings, len(chosen)


def _mended(found: Hub, finding: Finding, *, repair: bool) -> dict[str, Any]:
    from hub.fsck.repair import repair as mend

    said: dict[str, Any] = finding.said()
    if repair:
        said["repaired"] = mend(found.services, found.work, finding)
    return said
