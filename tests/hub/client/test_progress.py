import io

from rich.console import Console

from hub.client.bars import TerminalProgress
from hub.client.progress import Silent, open_progress


def drawn(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=120)


def test_bytes_and_counts_are_drawn_in_their_own_way() -> None:
    console = terminal()
    with TerminalProgress(console) as progress:
        progress.begin("Packing", 7)
        progress.at(3)
        progress.begin("Uploading", 2_000_000, "bytes")
        progress.at(1_000_000)
    text = drawn(console)
    assert "Uploading" in text
    assert "1.0/2.0 MB" in text


def test_wait_shows_its_sentence_even_before_any_step_and_without_markup() -> None:
    console = terminal()
    with TerminalProgress(console) as progress:
        progress.waiting("waiting 2 s: [red]job[/red]")
    assert "[red]job[/red]" in drawn(console)


def test_step_without_a_step_is_ignored() -> None:
    console = terminal()
    with TerminalProgress(console) as progress:
        progress.at(5)
    assert "5" not in drawn(console).replace("\x1b[?25", "")


def test_nothing_is_drawn_without_a_terminal_or_when_quiet() -> None:
    assert isinstance(open_progress(quiet=False), Silent)
    assert isinstance(open_progress(quiet=True), Silent)
