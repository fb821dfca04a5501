"""What can go wrong in the client, and the exit code that says so.

ClientError
├── Refused             the server said no, or the branch has moved                            exit 1
│   ├── NotReady        the answer is still being made (503 MPACK_NOT_READY); names the jobs   exit 1
│   └── LinkRefused     an upload or download link is expired or unknown; ask for a new one    exit 1
├── LocalConflict       the destination holds something that must not be touched               exit 1
├── BadInput            an argument or a local file that cannot be used                        exit 2
├── Unreachable         no answer, or one that no hub gives                                    exit 3
│   └── NoAnswer        the connection failed or broke; another try may succeed                exit 3
└── VerificationFailed  the bytes received are not what their ids say                          exit 4
"""

from __future__ import annotations

import unicodedata
from typing import Any, NamedTuple

SENTENCE_CHARACTERS_MAX = 1000


class ClientError(Exception):
    """The command cannot be done. The message is one or two sentences for the person at the terminal."""

    exit_code = 1
    code = "ERROR"

    def __init__(self, sentence: str) -> None:
        self.details: dict[str, Any] = {}
        """What `--json` tells besides the sentence."""
        super().__init__(printable(sentence))
        self.sentence = printable(sentence)


class Waiting(NamedTuple):
    """A job of the hub that an answer waits for."""

    job_id: str
    task: str
    status: str
    sentence: str

    def __str__(self) -> str:
        """One line for the person who waits."""
        return printable(self.sentence or f"{self.task} {self.job_id} is {self.status}")


class Refused(ClientError):
    """The server said no. `status` is the HTTP status, `code` the server's own short code."""

    def __init__(self, status: int, code: str, sentence: str, *, retry_after: float | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.code = printable(code)
        self.retry_after = retry_after


class NotReady(Refused):
    """The answer is still being made; `why` lists the jobs it waits for."""

    def __init__(self, sentence: str, *, retry_after: float | None, why: tuple[Waiting, ...]) -> None:
        jobs = "; ".join(text for text in map(str, why) if text not in sentence)
        full = f"{sentence} Waiting for: {jobs}" if jobs else sentence
        super().__init__(503, "MPACK_NOT_READY", full, retry_after=retry_after)
        self.why = why


class LinkRefused(Refused):
    """An upload or download link is expired or unknown; the hub gives a new one."""


class LocalConflict(ClientError):
    """The destination holds something that must not be overwritten."""

    code = "LOCAL_CONFLICT"


class BadInput(ClientError):
    """An argument or a local file cannot be used."""

    exit_code = 2
    code = "BAD_INPUT"


class Unreachable(ClientError):
    """No answer, or one that no hub gives."""

    exit_code = 3
    code = "UNREACHABLE"


class NoAnswer(Unreachable):
    """The connection failed or broke; another try may succeed."""


class VerificationFailed(ClientError):
    """The bytes received are not what their ids say."""

    exit_code = 4
    code = "VERIFICATION_FAILED"


def printable(text: str) -> str:
    """`text` without control characters and not longer than 1,000 characters.

    Sentences and names come from the server or from a pack: a terminal must not obey them.
    """
    shown = "".join(
        " " if character in "\r\n\t" else "\N{REPLACEMENT CHARACTER}" if _unsafe(character) else character
        for character in text[: SENTENCE_CHARACTERS_MAX + 1]
    )
    return shown if len(shown) <= SENTENCE_CHARACTERS_MAX else shown[: SENTENCE_CHARACTERS_MAX - 1] + "…"


def _unsafe(character: str) -> bool:
    # Cc: control, Cf: invisible and bidirectional overrides, Cs: lone surrogates, which UTF-8 cannot hold.
    return unicodedata.category(character) in {"Cc", "Cf", "Cs"}
