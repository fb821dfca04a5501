"""A TCP gateway in front of a server: a test shuts it to hold a process in the middle of a request."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self


class Gateway:
    """Passes bytes on unchanged. While it is shut, what the server answers is held back."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._open = threading.Event()
        self._open.set()
        self.held = threading.Event()
        """Set when an answer is being held back."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def shut(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def _start(self, call: object, *arguments: object) -> None:
        thread = threading.Thread(target=call, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            self._sockets += [client, server]
            self._start(self._pump, client, server)
            self._start(self._pump, server, client)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        answers = source.getpeername() == self._target
        try:
            while data := source.recv(65536):
                if answers and not self._open.is_set():
                    self.held.set()
                    self._open.wait()
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return  # one side is gone; the other pump ends by its own error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for item in self._sockets:
            with suppress(OSError):  # its peer closed it before
                item.shutdown(socket.SHUT_RDWR)
            item.close()
        for thread in self._threads:
            thread.join(timeout=10)
