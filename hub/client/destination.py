"""Where a clone goes: built aside, put in place at the end, never over something that differs."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hub.client import workdir
from hub.client.errors import LocalConflict

SHOWN_CONFLICTS = 5


@contextmanager
def staged(directory: Path, *, force: bool) -> Iterator[Path]:
    """Give an empty directory to build in; put its content at `directory` when the block ends well.

    - `directory` does not exist: what was built is renamed to it, so it is there whole or not at all.
    - It is an empty directory: the files are moved into it, the configuration last.
    - It has content: refused, unless `force`. Then files that are missing are added, files that are the same
      are kept, other files are left alone; a single file that differs refuses the whole, before anything is
      changed.

    Whatever happens, what was built and not put in place is removed. Raises LocalConflict.
    """
    target = _target(directory, force=force)
    exists = target.is_dir()
    # Inside the configuration's directory no push takes what a crash may leave behind for content.
    place = target / workdir.STATE if exists else target.parent
    building = place / f".packhouse-{secrets.token_hex(8)}"
    try:
        place.mkdir(parents=True, exist_ok=True)
        # Not tempfile.mkdtemp: its mode 0700 would become that of the clone.
        building.mkdir()
    except OSError as error:
        raise LocalConflict(f"«{directory}» cannot be created: {error.strerror}.") from None
    try:
        yield building
        if exists:
            _add_all(building, target, _missing(building, target))
        else:
            _rename(building, target)
    finally:
        if building.exists():
            import shutil

            shutil.rmtree(building)
        if exists and not any(place.iterdir()):
            place.rmdir()


def _target(directory: Path, *, force: bool) -> Path:
    target = directory.resolve()
    try:
        kind = target.lstat().st_mode
    except FileNotFoundError:
        return target
    except OSError as error:
        raise LocalConflict(f"«{directory}» cannot be used: {error.strerror}.") from None
    if not stat.S_ISDIR(kind):
        raise LocalConflict(f"«{directory}» exists and is not a directory.")
    state = target / workdir.STATE
    if state.is_symlink() or (state.exists() and not state.is_dir()):
        raise LocalConflict(f"«{directory}» has a {workdir.STATE} that is no directory; remove it first.")
    if not force and any(target.iterdir()):
        raise LocalConflict(
            f"«{directory}» is not empty. Choose another directory, or add to this one with --force "
            "(which changes no file that is there)."
        )
    return target


def _rename(building: Path, target: Path) -> None:
    try:
        building.rename(target)
    except OSError as error:
        raise LocalConflict(f"«{target.name}» cannot be put in place: {error.strerror}.") from None


def _built(building: Path) -> Iterator[tuple[Path, Path]]:
    """Every file below `building`: its place and its relative path, in the order of the paths."""
    for location in sorted(path for path in building.rglob("*") if not path.is_dir()):
        yield location, location.relative_to(building)


def _missing(building: Path, target: Path) -> list[Path]:
    """The relative paths of the files that `target` has not yet. Raises LocalConflict when others differ."""
    conflicts: list[str] = []
    missing: list[Path] = []
    for location, relative in _built(building):
        if relative.parent == Path(workdir.STATE) and relative.name in workdir.STATE_FILES:
            continue
        if _is_missing(target, relative):
            missing.append(relative)
        elif not _is_same(location, target, relative):
            conflicts.append(str(relative))
    before = workdir.load(target)
    built = workdir.load(building)
    if before is not None and built is not None and before.url != built.url:
        conflicts.insert(0, f"{workdir.STATE} (of {before.url})")
    if conflicts:
        more = len(conflicts) - SHOWN_CONFLICTS
        shown = ", ".join(conflicts[:SHOWN_CONFLICTS]) + (f" and {more} more" if more > 0 else "")
        raise LocalConflict(f"Nothing was changed, because these are there already and differ: {shown}.")
    return missing


def _is_missing(target: Path, relative: Path) -> bool:
    """Whether there is room for the file: its directories are real ones or absent, itself is absent."""
    place = target
    for segment in relative.parts:
        if not _is_real_directory(place):
            return False
        place /= segment
        if not os.path.lexists(place):
            return True
    return False


def _is_same(location: Path, target: Path, relative: Path) -> bool:
    """Whether the very file is there already, and not behind a link."""
    import filecmp

    parents = [target.joinpath(*relative.parts[:depth]) for depth in range(1, len(relative.parts))]
    place = target / relative
    return (
        all(_is_real_directory(parent) for parent in parents)
        and not place.is_symlink()
        and place.is_file()
        and filecmp.cmp(location, place, shallow=False)
    )


def _is_real_directory(place: Path) -> bool:
    return place.is_dir() and not place.is_symlink()


def _add_all(building: Path, target: Path, missing: list[Path]) -> None:
    try:
        for relative in missing:
            place = target / relative
            place.parent.mkdir(parents=True, exist_ok=True)
            add_file(building / relative, place)
        (target / workdir.STATE).mkdir(exist_ok=True)
        for name in workdir.STATE_FILES:
            if (building / workdir.STATE / name).is_file():
                (building / workdir.STATE / name).replace(target / workdir.STATE / name)
    except OSError as error:
        raise LocalConflict(f"The files cannot be put in place: {error.strerror}. Repeat with --force.") from None


def add_file(location: Path, place: Path) -> None:
    """Put a file where none is; a file that has come meanwhile stays and the link fails."""
    try:
        os.link(location, place)
    except FileExistsError:
        raise
    except OSError:
        import shutil

        # This file system has no hard links: creating the file anew refuses an existing one just as well.
        with location.open("rb") as content, place.open("xb") as out:
            shutil.copyfileobj(content, out)
