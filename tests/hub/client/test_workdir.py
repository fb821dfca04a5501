import json
from pathlib import Path

import pytest

from hub.client import workdir
from hub.client.errors import BadInput
from hub.client.workdir import Workdir

HERE = Workdir("http://127.0.0.1:8000/ada/notes", "main", "a" * 64)


def test_configuration_survives_writing_and_reading(tmp_path: Path) -> None:
    workdir.save(tmp_path, HERE)
    workdir.save(tmp_path, Workdir(HERE.url, "next", None))
    assert workdir.load(tmp_path) == Workdir(HERE.url, "next", None)
    assert [path.name for path in (tmp_path / ".packhouse").iterdir()] == ["config.json"]


def test_directory_without_configuration_has_none(tmp_path: Path) -> None:
    assert workdir.load(tmp_path) is None
    assert workdir.find_root(tmp_path / "deep") is None


def test_root_is_found_from_below(tmp_path: Path) -> None:
    workdir.save(tmp_path, HERE)
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert workdir.find_root(tmp_path / "a" / "b") == tmp_path


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 100_000,
        json.dumps({"url": 1, "branch": "main", "head": None}),
        json.dumps({"url": "http://h/a/b", "branch": "../x", "head": None}),
        json.dumps({"url": "http://h/a/b", "branch": "main", "head": "short"}),
        json.dumps({"url": "ftp://h/a/b", "branch": "main", "head": None}),
        '{"url": "http://h/a/b", "branch": "main", "head": null}' + " " * 70_000,
    ],
)
def test_damaged_configuration_is_refused(tmp_path: Path, text: str) -> None:
    workdir.config_path(tmp_path).parent.mkdir()
    workdir.config_path(tmp_path).write_text(text)
    with pytest.raises(BadInput):
        workdir.load(tmp_path)
