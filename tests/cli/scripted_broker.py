"""A listener of Kafka's protocol that answers as a test says: what no real broker does when it is asked to."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread

from harness.waiting import PATIENCE_S

from pybroker_protocol import codec
from pybroker_protocol.messages import request_class, request_header_version, response_header_version
from pybroker_protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from pybroker_protocol.messages.headers import RequestHeader, ResponseHeader
from pybroker_protocol.schema import Request, Response


class Stop(Exception):
    """Raised by a script: the broker closes the connection, and listens no more."""


Script = Callable[[Request], Response | None]


@contextmanager
def scripted_broker(script: Script, served: Iterable[type[Request]]) -> Iterator[str]:
    """Its address.  It serves these APIs in all versions, and closes the connection where the script says None."""
    apis = []
    known: list[type[Request]] = [ApiVersionsRequest, *served]
    for each in known:
        key, versions = each.__declaration__.key, each.__declaration__.versions
        assert key is not None
        assert versions is not None
        apis.append(ApiVersion(api_key=key, min_version=versions.lowest, max_version=versions.highest))
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[Thread] = []

    def answered(request: Request) -> Response | None:
        return (
            ApiVersionsResponse(error_code=0, api_keys=apis) if type(request) is ApiVersionsRequest else script(request)
        )

    def serve(client: socket.socket) -> None:
        with client, suppress(OSError):
            client.settimeout(PATIENCE_S)
            try:
                while _serve_one(client, answered):
                    pass
            except Stop:
                _end(listener)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threads.append(Thread(target=serve, args=(listener.accept()[0],)))
                threads[-1].start()

    accepting = Thread(target=accept)
    accepting.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        _end(listener)
        accepting.join()
        listener.close()
        for thread in threads:
            thread.join()


def _end(listener: socket.socket) -> None:
    with suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)


def _serve_one(client: socket.socket, answered: Script) -> bool:
    """One request; whether the connection is still open."""
    data = client.recv(4, socket.MSG_WAITALL)
    if len(data) < 4:
        return False
    frame = memoryview(client.recv(int.from_bytes(data, "big"), socket.MSG_WAITALL))
    key, version = (int.from_bytes(frame[at : at + 2], "big") for at in (0, 2))
    header, position = codec.decoder(RequestHeader, request_header_version(key, version))(frame, 0)
    request, _ = codec.decoder(request_class(key), version)(frame, position)
    response = answered(request)
    if response is None:
        return False
    parts: list[bytes] = [b""]
    head = ResponseHeader(correlation_id=header.correlation_id)
    codec.encoder(ResponseHeader, response_header_version(key, version))(head, parts)
    codec.encoder(type(response), version)(response, parts)
    parts[0] = sum(map(len, parts)).to_bytes(4, "big")
    client.sendall(b"".join(parts))
    return True
