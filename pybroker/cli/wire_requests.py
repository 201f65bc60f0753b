"""Messages of ``pybroker_protocol`` over kafka-python's connections.

Owns: requests that kafka-python's admin client lacks, and those that Kafka answers entry by entry where it raises the
first entry's error and drops the rest.  Connections, their security, time-outs and versions stay kafka-python's; its
private parts are touched in this module only.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from pybroker.cli.error_names import refused
from pybroker_protocol import codec
from pybroker_protocol.errors import ErrorCode, ProtocolError

if TYPE_CHECKING:
    from pybroker_protocol.schema import Message, Request

# What passes by itself: a coordinator that loads or moves, a leader that moves, a transaction that is being ended.
PASSING_ERRORS = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


API_VERSIONS = 18  # its key


class CoordinatorType(IntEnum):
    """What a coordinator coordinates, by its number in FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class _AwaitedResponse:
    """What a connection keeps of a request until its reply comes: the header, and how to read the reply."""

    def __init__(self, response_class: type[Message], api_version: int, is_flexible: bool, correlation_id: int) -> None:
        self.correlation_id = correlation_id
        self.api_key = response_class.__declaration__.key
        self.api_version = api_version
        self._response_class = response_class
        # That of ApiVersions has the oldest header, as who asks may know no other.
        self._header_version = int(is_flexible and self.api_key != API_VERSIONS)

    def get_response_class(self) -> _AwaitedResponse:
        return self

    def parse_header(self, buffer: Any) -> Any:
        """The header of the reply; the buffer is left at the reply's body."""
        from pybroker_protocol.messages.headers import ResponseHeader

        start = buffer.tell()
        header, size = codec.decoder(ResponseHeader, self._header_version)(memoryview(buffer.read()), 0)
        buffer.seek(start + size)
        return header

    def decode(self, buffer: Any) -> Message:
        """The body of the reply; ``ValueError``, which the connection expects, for bytes that are none."""
        try:
            return codec.decode(self._response_class, self.api_version, buffer.read())
        except ProtocolError as error:
            raise ValueError(str(error)) from error


class _CarriedRequest:
    """What kafka-python's connection wants to know of a request, around a message of ours."""

    def __init__(self, message: Request, min_version: int, max_version: int | None) -> None:
        declaration = type(message).__declaration__
        assert declaration.versions is not None, "requests have versions"
        self.API_KEY = declaration.key
        self.API_VERSION: int | None = None
        self.name = type(message).__name__
        self.min_version = self._min_version = max(min_version, declaration.versions.lowest)
        highest = declaration.versions.highest
        self.max_version = self._max_version = highest if max_version is None else max_version
        self.header: _AwaitedResponse | None = None
        self._message = message
        self._client_id = ""

    def __str__(self) -> str:
        return f"{self.name} version {self.API_VERSION}"

    def expect_response(self) -> bool:
        return True

    def with_header(self, correlation_id: int, client_id: str) -> None:
        from pybroker_protocol.messages import response_class

        assert self.API_KEY is not None
        assert self.API_VERSION is not None
        flexible = codec.is_flexible(type(self._message), self.API_VERSION)
        self._client_id = client_id
        self.header = _AwaitedResponse(response_class(self.API_KEY), self.API_VERSION, flexible, correlation_id)

    def encode(self, *, framed: bool, header: bool) -> bytes:
        """The whole frame; kafka-python asks for nothing less."""
        from pybroker_protocol.messages.headers import RequestHeader

        assert framed
        assert header
        assert self.header is not None
        assert self.API_KEY is not None
        version = self.header.api_version
        request_header = RequestHeader(
            request_api_key=self.API_KEY,
            request_api_version=version,
            correlation_id=self.header.correlation_id,
            client_id=self._client_id,
        )
        header_version = 2 if codec.is_flexible(type(self._message), version) else 1
        frame = codec.encode(request_header, header_version) + codec.encode(self._message, version)
        return len(frame).to_bytes(4, "big") + frame


def ask(
    client: Any,
    request: Request,
    node_id: int | None = None,
    *,
    min_version: int = 0,
    max_version: int | None = None,
) -> Any:
    """One broker's response to ``request``, in the highest version both sides know, or ``max_version``; any broker's
    without a node id.

    Raises kafka-python's errors: ``IncompatibleBrokerVersion`` when the broker has no version from ``min_version`` on.
    """
    manager = client._manager
    # The library bounds a request that was sent; this bounds whatever it waits for besides.
    timeout_ms = manager.config["request_timeout_ms"] + manager.config["socket_connection_setup_timeout_max_ms"]

    async def exchange() -> Any:
        carried = _CarriedRequest(request, min_version, max_version)
        return await manager.wait_for(manager.send(carried, node_id=node_id), timeout_ms)

    return manager.run(exchange)


def is_served(client: Any, request_class: type[Request], version: int = 0) -> bool:
    """Whether the brokers know the API, in this version or a later one."""
    known = client._manager.broker_version_data.api_versions.get(request_class.__declaration__.key)
    return known is not None and bool(known[1] >= version)


def raise_passing(codes: Iterable[int]) -> None:
    """Raise the first of ``codes`` that passes by itself, for ``retried`` to ask again."""
    from kafka.errors import RetriableError, for_code

    for code in codes:
        if code in PASSING_ERRORS:
            error = for_code(code)
            raise error() if issubclass(error, RetriableError) else RetriableError(error.__name__)


def brokers(client: Any) -> list[int]:
    """The ids of all brokers that answer."""
    return sorted(
        broker["broker_id"] for broker in client.describe_cluster()["brokers"] if not broker.get("is_fenced", False)
    )


def find_coordinators(client: Any, keys: Iterable[str], kind: CoordinatorType) -> dict[int, list[str]]:
    """The keys of each coordinator, by its node id; raises ``CommandFailed`` for a key that has none."""
    from pybroker_protocol.messages.find_coordinator import FindCoordinatorRequest

    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=sorted(set(keys)))
    found: dict[int, list[str]] = {}
    for coordinator in ask(client, request, min_version=4).coordinators:
        raise_passing([coordinator.error_code])
        if coordinator.error_code:
            raise refused(f"coordinator of {coordinator.key}", coordinator.error_code, coordinator.error_message)
        found.setdefault(coordinator.node_id, []).append(coordinator.key)
    return found
