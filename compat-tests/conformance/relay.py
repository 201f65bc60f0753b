"""A way to a broker that is closed at first."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Self


class Relay:
    """Forwards connections to an address, but for the first ``refusals``, which it closes at once.

    ``connected_s`` has when each of them came, by the monotonic clock.  Only what bootstraps here comes here: the
    broker's replies name its own address.
    """

    def __init__(self, to: tuple[str, int], refusals: int) -> None:
        self.connected_s: list[float] = []
        self._to = to
        self._refusals = refusals
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]

    @property
    def bootstrap(self) -> str:
        return "{}:{}".format(*self._listener.getsockname())

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for opened in (self._listener, *self._open):
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for opened in (self._listener, *self._open):
            opened.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connected_s.append(time.monotonic())
                if len(self.connected_s) <= self._refusals:
                    client.close()
                else:
                    self._forward(client, socket.create_connection(self._to))

    def _forward(self, client: socket.socket, broker: socket.socket) -> None:
        self._open += [client, broker]
        for source, sink in ((client, broker), (broker, client)):
            self._threads.append(threading.Thread(target=self._copy, args=(source, sink)))
            self._threads[-1].start()

    @staticmethod
    def _copy(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
