"""A broker behind a proxy that passes requests on, and loses the answer to the first one of a kind.

What a command sees is a connection that ends behind a request that was done.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from threading import Thread

from harness.broker_probe import free_port
from harness.waiting import PATIENCE_S

from pybroker.testing import Broker
from pybroker_protocol.schema import Request


class AnswerDropper:
    """The proxy, at ``bootstrap``.  ``lose`` says whose next answer is lost, ``lost`` counts those that were."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.bootstrap = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._losing: int | None = None
        self._port = 0
        self._threads: list[Thread] = []
        self._clients: list[socket.socket] = []
        self.lost = 0
        self._stops = False

    def lose(self, kind: type[Request], *, stops: bool = False) -> None:
        """Lose the answer to the next request of this kind; with ``stops`` serve no connection from then on."""
        self._losing, self.lost, self._stops = kind.__declaration__.key, 0, stops

    def serve(self, port: int) -> None:
        """Pass on to the broker at a port."""
        self._port = port
        self._threads.append(Thread(target=self._accept))
        self._threads[0].start()

    def close(self) -> None:
        """End what runs."""
        self._end()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _end(self) -> None:
        for each in (self._listener, *self._clients):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                self._clients.append(self._listener.accept()[0])
                thread = Thread(target=self._serve_one, args=(self._clients[-1],))
                thread.start()
                self._threads.append(thread)

    def _serve_one(self, client: socket.socket) -> None:
        with suppress(OSError), client, socket.create_connection(("127.0.0.1", self._port)) as broker:
            client.settimeout(PATIENCE_S)
            broker.settimeout(PATIENCE_S)
            while request := _frame(client):
                broker.sendall(request)
                answer = _frame(broker)
                if int.from_bytes(request[4:6], "big") == self._losing:
                    self._losing = None
                    self.lost += 1
                    if self._stops:
                        self._end()
                    return
                client.sendall(answer)


def _frame(source: socket.socket) -> bytes:
    """A frame with its length in front; nothing at the end of the connection."""
    head = source.recv(4, socket.MSG_WAITALL)
    return head + source.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL) if len(head) == 4 else b""


@contextmanager
def behind_a_dropper(settings: Mapping[str, str]) -> Iterator[AnswerDropper]:
    """A broker that sends its clients through the proxy."""
    with ExitStack() as stack:
        dropper = AnswerDropper()
        stack.callback(dropper.close)
        advertised = {"advertised.listeners": f"PLAINTEXT://{dropper.bootstrap}"}
        # The broker's own names are those that it advertises.
        port = free_port()
        stack.enter_context(Broker({**settings, **advertised}, listen=f"127.0.0.1:{port}"))
        dropper.serve(port)
        yield dropper
