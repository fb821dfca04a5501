from pathlib import Path

import pytest

from hub.client.errors import BadInput
from hub.client.ignores import Ignores
from hub.client.tree import read_tree


def make(root: Path, *paths: str, **rules: str) -> Path:
    """Make files; `rules` are ignore files: gitignore, museignore at the root."""
    root.mkdir(exist_ok=True)
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(path.encode())
    for name, text in rules.items():
        (root / f".{name}").write_text(text)
    return root


def taken(root: Path, *tracked: str) -> list[str]:
    tree = read_tree(root, rules=True, tracked=tracked)
    return [file.path for file in tree.files if "ignore" not in file.path]


def test_rules_of_the_root_hold_everywhere(tmp_path: Path) -> None:
    root = make(tmp_path / "w", "a.o", "d/b.o", "keep.c", "build/x", "d/build/y", gitignore="*.o\n# no rule\nbuild/\n")
    assert taken(root) == ["keep.c"]


def test_later_rule_takes_back(tmp_path: Path) -> None:
    assert taken(make(tmp_path / "w", "a.log", "b.log", gitignore="*.log\n!b.log\n")) == ["b.log"]


def test_leading_slash_means_here_only(tmp_path: Path) -> None:
    assert taken(make(tmp_path / "w", "x", "d/x", gitignore="/x\n")) == ["d/x"]


def test_nested_rules_hold_below_and_win(tmp_path: Path) -> None:
    root = make(tmp_path / "w", "a.log", "d/a.log", "d/b.tmp", "e/b.tmp", gitignore="*.log\n")
    (root / "d" / ".gitignore").write_text("!a.log\n/b.tmp\n")
    assert taken(root) == ["d/a.log", "e/b.tmp"]


def test_nothing_inside_an_ignored_directory_comes_back(tmp_path: Path) -> None:
    root = make(tmp_path / "w", "out/keep", gitignore="out/\n!out/keep\n")
    (root / "out" / ".gitignore").write_text("!keep\n")
    assert taken(root) == []


def test_ignore_files_themselves_are_pushed(tmp_path: Path) -> None:
    root = make(tmp_path / "w", "a", gitignore="b\n", museignore="")
    assert [file.path for file in read_tree(root, rules=True).files] == [".gitignore", ".museignore", "a"]


def test_muse_rules_are_those_for_all_domains_and_for_ours(tmp_path: Path) -> None:
    text = """
    [global]
    patterns = ["*.tmp", "cache/*.dat", "/top"]
    [domain.code]
    patterns = ["*.pyc"]
    [domain.midi]
    patterns = ["*.wav"]
    """
    paths = ("a.tmp", "x.pyc", "x.wav", "cache/i.dat", "d/cache/i.dat", "top", "d/top")
    root = make(tmp_path / "w", *paths, museignore=text)
    assert taken(root) == ["d/top", "x.wav"]
    make(root, ".muse/repo.json")
    (root / ".muse" / "repo.json").write_text('{"domain": "midi"}')
    assert taken(root) == ["d/top", "x.pyc"]


def test_muse_rules_win_over_those_of_git(tmp_path: Path) -> None:
    museignore = '[global]\npatterns = ["!a.log"]\n'
    assert taken(make(tmp_path / "w", "a.log", "b.log", gitignore="*.log\n", museignore=museignore)) == ["a.log"]


def test_tracked_files_stay_whatever_the_rules_say(tmp_path: Path) -> None:
    root = make(tmp_path / "w", "dist/old", "dist/new", "dist/deep/old", "x.o", gitignore="dist/\n*.o\n")
    assert taken(root, "dist/old", "dist/deep/old", "x.o") == ["dist/deep/old", "dist/old", "x.o"]


def test_what_is_left_out_is_counted_by_its_top(tmp_path: Path) -> None:
    root = make(tmp_path / "w", "out/1", "out/2", "a.o", "b", gitignore="out/\n*.o\n")
    assert read_tree(root, rules=True).ignored == 2


def test_without_rules_everything_is_taken(tmp_path: Path) -> None:
    root = make(tmp_path / "w", "a.o", gitignore="*.o\n")
    assert [file.path for file in read_tree(root).files] == [".gitignore", "a.o"]


def test_link_instead_of_rules_is_not_followed(tmp_path: Path) -> None:
    root = make(tmp_path / "w", "a.o", "rules")
    (root / "rules").write_text("*.o\n")
    (root / ".gitignore").symlink_to("rules")
    assert not Ignores.at_root(root).ignores("a.o", is_directory=False)


@pytest.mark.parametrize("text", ["patterns = [", "[global]\npatterns = 5\n", "[global]\npatterns = [5]\n"])
def test_broken_muse_rules_are_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadInput, match=r"\.museignore cannot be read"):
        taken(make(tmp_path / "w", "a", museignore=text))


@pytest.mark.parametrize("text", ["nothing = 1\n", "global = 5\n", "[domain]\ncode = 5\n"])
def test_muse_rules_without_patterns_ignore_nothing(tmp_path: Path, text: str) -> None:
    assert taken(make(tmp_path / "w", "a", museignore=text)) == ["a"]
