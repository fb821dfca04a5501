"""The tokens of `packhouse login`: one line a hub, in a file that nobody else can read."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

from hub.client.errors import BadInput

LINE = re.compile(r"machine (\S+) token ([!-~]+)")
FILE_BYTES_MAX = 1024 * 1024


class Credentials:
    """The file with the tokens; each belongs to one `host[:port]`."""

    def __init__(self, path: Path) -> None:
        """Look at nothing yet."""
        self._path = path

    def find(self, authority: str) -> str | None:
        """Return the token of a hub, None without one. Raises BadInput for a file that is damaged or not private."""
        return self._read().get(authority)

    def save(self, authority: str, token: str) -> None:
        """Keep the token of a hub, in place of the one it has. Raises BadInput."""
        self._write(self._read() | {authority: token})

    def remove(self, authority: str) -> bool:
        """Forget the token of a hub; tell whether there was one. Raises BadInput."""
        tokens = self._read()
        if tokens.pop(authority, None) is None:
            return False
        self._write(tokens)
        return True

    def _read(self) -> dict[str, str]:
        try:
            with self._path.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                text = file.read(FILE_BYTES_MAX).decode("utf-8", "replace")
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise BadInput(f"«{self._path}» cannot be read: {error.strerror}.") from None
        if mode & 0o077:
            raise BadInput(
                f"Others can read the tokens in «{self._path}»: chmod 600 it, or remove it and log in again."
            )
        found = [LINE.fullmatch(line) for line in text.splitlines() if line.strip() and not line.startswith("#")]
        if not all(found):
            raise BadInput(f"«{self._path}» is damaged: each line should be «machine HOST[:PORT] token TOKEN».")
        return {match[1]: match[2] for match in found if match}

    def _write(self, tokens: dict[str, str]) -> None:
        fresh = self._path.with_name(f"{self._path.name}.{secrets.token_hex(8)}.tmp")
        lines = [f"machine {authority} token {token}\n" for authority, token in sorted(tokens.items())]
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.writelines(lines)
            fresh.replace(self._path)
        except OSError as error:
            raise BadInput(f"«{self._path}» cannot be written: {error.strerror}.") from None
        finally:
            fresh.unlink(missing_ok=True)
