"""Bringing the files of a directory from one snapshot to another: all contents first, then file by file."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import stat
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from hub.client import packs, workdir
from hub.client.checkout import Files
from hub.client.destination import add_file
from hub.client.difference import Change, signature
from hub.client.errors import LocalConflict
from hub.client.progress import Progress
from hub.client.tree import MIB, open_regular
from hub.records import EMPTY_OBJECT_ID


@contextmanager
def staging(root: Path) -> Iterator[Path]:
    """Give an empty directory in the working directory's own, removed at the end."""
    folder = root / workdir.STATE / f"pull-{secrets.token_hex(8)}"
    try:
        folder.mkdir()
    except OSError as error:
        raise LocalConflict(f"{workdir.STATE} cannot be written: {error.strerror}.") from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def gather(root: Path, folder: Path, object_ids: Collection[str], base: Mapping[str, str]) -> set[str]:
    """Put the contents of `object_ids`, each named by its id and verified, into `folder`.

    They are taken from the packs, or from files that have not changed since `base`. Returns those that are in
    neither.
    """
    missing = set(object_ids) - {path.name for path in folder.iterdir()}
    if EMPTY_OBJECT_ID in missing:
        missing.discard(EMPTY_OBJECT_ID)
        _keep(folder / EMPTY_OBJECT_ID, ())
    for entry, chunks in packs.iter_objects(root, missing):
        _keep(folder / entry.entity_id, chunks)
        missing.discard(entry.entity_id)
    for path, object_id in base.items():
        if object_id in missing and _copy_if_same(root, path, folder / object_id):
            missing.discard(object_id)
    return missing


def check_names(folder: Path, target: Mapping[str, str]) -> None:
    """Raise LocalConflict when this file system takes two paths of `target` for one."""
    groups: dict[str, list[str]] = {}
    for path in target:
        groups.setdefault(unicodedata.normalize("NFC", path).casefold(), []).append(path)
    alike = [path for group in groups.values() if len(group) > 1 for path in group]
    if alike:
        probe = folder / "names"
        probe.mkdir()
        with Files(probe) as files:
            for path in alike:
                files.write(path, ())
        shutil.rmtree(probe)


def apply(root: Path, folder: Path, changes: list[Change], progress: Progress) -> None:
    """Do the changes, whose contents `gather` has put into `folder`; what is to be gone goes first.

    Each file is the old one or the new one, nothing between. Raises LocalConflict at the first that is no
    longer as it was seen; those before it are done, and the same update can be begun again.
    """
    progress.begin("Writing files", len(changes))
    ordered = sorted(changes, key=lambda change: (change.after is not None, change.path))
    # The last path that needs an object takes the gathered file, those before it get copies.
    uses: dict[str, int] = {}
    for change in ordered:
        if change.after is not None:
            uses[change.after] = uses.get(change.after, 0) + 1
    for number, change in enumerate(ordered, start=1):
        with _explained(change.path):
            if signature(root / change.path) != change.seen and not (root / change.path).is_dir():
                raise LocalConflict(
                    f"«{change.path}» was changed while the update was being made. Nothing of yours is lost; "
                    "pull again."
                )
            if change.after is None:
                _remove(root, change.path)
            else:
                uses[change.after] -= 1
                _put(root, change, _own_copy(folder / change.after, last=not uses[change.after]))
        progress.at(number)


def _keep(location: Path, chunks: Iterable[bytes]) -> None:
    """Write a content whose hash `chunks` checks at its end; it has its name only then."""
    fresh = location.with_suffix(".part")
    try:
        with fresh.open("xb") as out:
            out.writelines(chunks)
    except OSError as error:
        raise LocalConflict(f"{workdir.STATE} cannot be written: {error.strerror}.") from None
    fresh.rename(location)


def _copy_if_same(root: Path, path: str, location: Path) -> bool:
    source = root / path
    if not source.is_file() or source.is_symlink():
        return False
    digest = hashlib.sha256()
    fresh = location.with_suffix(".part")
    with open_regular(source, path) as file, fresh.open("wb") as out:
        while chunk := file.read(MIB):
            digest.update(chunk)
            out.write(chunk)
    if digest.hexdigest() != location.name:
        fresh.unlink()
        return False
    fresh.rename(location)
    return True


def _own_copy(gathered: Path, *, last: bool) -> Path:
    if last:
        return gathered
    copy = gathered.with_name(f"{gathered.name}.copy")
    shutil.copyfile(gathered, copy)
    return copy


def _remove(root: Path, path: str) -> None:
    """Remove a file, and the directories that have become empty by it."""
    place = root / path
    place.unlink()
    for parent in place.parents:
        if parent == root or any(parent.iterdir()):
            break
        parent.rmdir()


def _put(root: Path, change: Change, content: Path) -> None:
    place = root.joinpath(*change.path.split("/"))
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.parent.resolve(strict=True) != place.parent:
        raise LocalConflict(f"«{change.path}» is reached through a symbolic link; nothing is written there.")
    if change.seen is None:
        if place.is_dir():
            _remove_empty(place)
        # A link, not a rename: a file that has come meanwhile stays, and this fails.
        add_file(content, place)
        content.unlink()
    else:
        content.chmod(stat.S_IMODE(place.lstat().st_mode))
        content.replace(place)


def _remove_empty(directory: Path) -> None:
    for folder, _, _ in os.walk(directory, topdown=False):
        Path(folder).rmdir()


@contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LocalConflict(f"«{path}» cannot be written: {error.strerror}. Pull again when it can.") from None
