"""A small HTTP server that plays prepared answers, also broken ones, and keeps what it was asked."""

from __future__ import annotations

import json
import threading
from collections import defaultdict, deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from werkzeug.serving import WSGIRequestHandler


@dataclass(frozen=True)
class Reply:
    """An answer. `cut`: only so many bytes of the body are sent, then the connection breaks; -1: not even a status."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    ranged: bool = False


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def answer(value: Any, status: int = 200, **headers: str) -> Reply:
    """A JSON answer; `Retry_After="1"` becomes the header Retry-After."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Reply(status, json.dumps(value).encode(), {"Content-Type": "application/json", **named})


class ScriptedServer:
    """Answers each (method, path) with its replies in order; the last of them again and again."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self._replies: dict[tuple[str, str], deque[Reply]] = defaultdict(deque)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        """The address of the repository it plays."""
        return f"{self.root}/ada/notes"

    def on(self, method: str, path: str, *replies: Reply) -> None:
        """Prepare further replies; `path` without «/» at its beginning lies in the repository."""
        full = path if path.startswith("/") else f"/ada/notes/{path}"
        self._replies[method, full].extend(replies)

    def asked_for(self, path: str) -> list[Asked]:
        full = path if path.startswith("/") else f"/ada/notes/{path}"
        return [asked for asked in self.asked if asked.path == full]

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _next(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        replies = self._replies.get((asked.method, asked.path.split("?")[0]))
        if not replies:
            return Reply(500, f"unexpected {asked.method} {asked.path}".encode(), {"Content-Type": "text/plain"})
        return replies.popleft() if len(replies) > 1 else replies[0]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._play()

            do_POST = do_PUT = do_GET

            def _play(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                asked = Asked(self.command, self.path, dict(self.headers), self.rfile.read(length))
                reply = outer._next(asked)
                if reply.cut == -1:
                    self.close_connection = True
                    return
                status, body, headers = reply.status, reply.body, dict(reply.headers)
                wanted = asked.headers.get("Range")
                if reply.ranged and wanted:
                    start, _, last = wanted.removeprefix("bytes=").partition("-")
                    end = int(last) + 1 if last else len(body)
                    headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(body)}"
                    status, body = 206, body[int(start) : end]
                self.send_response(status)
                for name, text in headers.items():
                    self.send_header(name, text)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body if reply.cut is None else body[: reply.cut])
                self.close_connection = reply.cut is not None

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def silent_handler() -> type[WSGIRequestHandler]:
    """Werkzeug's request handler without its log lines."""

    class Handler(WSGIRequestHandler):
        def log(self, *_: object) -> None:
            pass

    return Handler
