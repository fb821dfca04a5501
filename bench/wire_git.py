"""Git over smart HTTP: git's own http-backend under a small server of this module, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from bench.worlds import Commit

QUIET = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_TERMINAL_PROMPT": "0",
}


class Handler(BaseHTTPRequestHandler):
    """One request: one process of http-backend. Adds the bytes of both bodies to the file `bytes` of the root."""

    protocol_version = "HTTP/1.1"
    root: Path

    def serve(self) -> None:
        """Pass the request to git, and its answer back."""
        url = urlsplit(self.path)
        length = int(self.headers.get("Content-Length", 0))
        environ = {
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REMOTE_USER": "bench",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": url.path,
            "QUERY_STRING": url.query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(length),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "HTTP_GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "PATH": os.environ["PATH"],
            **QUIET,
        }
        done = subprocess.run(
            ["git", "http-backend"], env=environ, input=self.rfile.read(length), capture_output=True, check=False
        )
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        with (self.root / "bytes").open("a") as log:
            log.write(f"{length} {len(body)}\n")

    do_GET = do_POST = serve  # noqa: N815  (the names of http.server)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the name of http.server)
        """Say nothing."""


@contextmanager
def served(root: Path) -> Iterator[tuple[str, int]]:
    """Bare repositories below `root`: (address, pid of the server)."""
    command = [sys.executable, "-m", "bench.wire_git", str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield f"http://127.0.0.1:{int(server.stdout.readline())}", server.pid
        finally:
            server.terminate()


def make_bare(bare: Path) -> None:
    """An empty repository that takes pushes."""
    run("init", "--bare", "-q", "-b", "main", str(bare))
    run("-C", str(bare), "config", "http.receivepack", "true")


def make(commits: list[Commit], work: Path) -> None:
    """A repository with these commits on main, all objects in one pack with deltas: a push copies it."""
    run("init", "-q", "-b", "main", str(work))
    stream = bytearray()
    for number, commit in enumerate(commits):
        said = commit.record["message"].encode()
        stream += b"commit refs/heads/main\ncommitter b <b@b> %d +0000\n" % (1_767_225_600 + 60 * number)
        stream += b"data %d\n%b\n" % (len(said), said)
        for path, data in commit.changed.items():
            stream += b"M 100644 inline %b\ndata %d\n%b\n" % (path.encode(), len(data), data)
    run("-C", str(work), "fast-import", "--quiet", stdin=bytes(stream))


def traffic(root: Path) -> tuple[int, int]:
    """Bytes received and sent by the server so far."""
    log = root / "bytes"
    pairs = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    return sum(int(pair[0]) for pair in pairs), sum(int(pair[1]) for pair in pairs)


def run(*arguments: str, stdin: bytes = b"") -> None:
    """Run git; a push goes up in one request of known length."""
    command = ["git", "-c", "http.postBuffer=2000000000", *arguments]
    subprocess.run(command, input=stdin, check=True, capture_output=True, env={**os.environ, **QUIET})


if __name__ == "__main__":
    Handler.root = Path(sys.argv[1])
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(httpd.server_address[1], flush=True)
    httpd.serve_forever()
