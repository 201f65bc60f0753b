"""The client of the commands that administer: messages of ``pybroker_protocol`` to any broker of a cluster.

Owns: a connection to each broker that is asked, which broker is asked where any may be, and the memory of changes that
got no answer.  Owns no connection's steps (``broker_connection``), no request (``wire_requests``, ``topic_requests``
and their like) and no repeat (``retries``).  Producers and consumers are librdkafka's (``data_clients``).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import typer

from pybroker.cli.connection.broker_connection import BrokerConnection, NotReached
from pybroker.cli.connection.changes import is_change, name_of
from pybroker.cli.connection.client_settings import (
    ADDRESSES,
    ADDRESSES_ELSEWHERE,
    HEEDED_OF_SECURITY,
    OF_SECURITY,
    Access,
    Address,
    ClientOptions,
    ClientSettings,
    gathered,
    parse_addresses,
)
from pybroker.cli.connection.reachability import CONNECTED_WITHIN_S, REACHED_WITHIN_S, reached
from pybroker.cli.connection.retries import Passing, UnknownBroker
from pybroker.cli.terminal.failure import CommandFailed
from pybroker.cli.terminal.options import INT32_MAX
from pybroker_protocol.messages.metadata import MetadataRequest, MetadataResponse
from pybroker_protocol.schema import Request

_REQUEST_TIMEOUT_S: Final = 60.0
_MARGIN_S: Final = 5.0  # for the way of an answer whose time the user has chosen
_HEEDED: Final = HEEDED_OF_SECURITY | {"bootstrap.timeout.ms", "client.id", "request.timeout.ms"}


class AdminClient:
    """Asks brokers of one cluster; not for several threads."""

    def __init__(self, addresses: Sequence[Address], access: Access, timeout_s: float) -> None:
        """``timeout_s`` bounds the wait for an answer."""
        self.access = access
        self._addresses = addresses
        self._timeout_s = timeout_s
        self._any: BrokerConnection | None = None
        self._of_brokers: dict[int, BrokerConnection] = {}
        self._unanswered: list[Request] = []
        self._in_doubt: dict[str, None] = {}

    def open(self, within_s: float = REACHED_WITHIN_S, *, advises: bool = False) -> None:
        """Have one broker let this client in; ``CommandFailed`` with a sentence for each that does not."""
        self._any = reached(self._addresses, self.access, within_s, advises=advises)

    def close(self) -> None:
        """Idempotent."""
        for connection in (self._any, *self._of_brokers.values()):
            if connection is not None:
                connection.close()
        self._any = None
        self._of_brokers.clear()

    def ask(
        self,
        request: Request,
        node_id: int | None = None,
        *,
        min_version: int = 0,
        max_version: int | None = None,
        takes_ms: int = 0,
    ) -> Any:
        """One broker's response in the highest version that both sides know; any broker's without a node id.

        ``takes_ms``: so long the broker may take by what the user has asked for, whatever the time-out.
        """
        connection = self._connection(node_id)
        connection.wait_for(max(self._timeout_s, takes_ms / 1_000 + _MARGIN_S) if takes_ms else self._timeout_s)
        try:
            answer = connection.ask(request, min_version, max_version)
        except NotReached as error:
            # What else is on that connection would be behind a reply that may still come.
            connection.close()
            if is_change(request):
                self._unanswered.append(request)
                self._in_doubt[name_of(request)] = None
            raise Passing(str(error)) from error
        self._in_doubt.pop(name_of(request), None)
        return answer

    def got_no_answer(self, request: Request) -> bool:
        """Whether the same change was sent before by this client, and its answer was lost: it may be done."""
        return request in self._unanswered

    @property
    def doubt(self) -> str | None:
        """A sentence with the changes that may be done or not, since the last request of each got no answer."""
        return f"{' and '.join(self._in_doubt)} got no answer, and may be done even so" if self._in_doubt else None

    def serves(self, request_class: type[Request], version: int = 0) -> bool:
        """Whether brokers know the API, in this version or a later one."""
        key = request_class.__declaration__.key
        return key is not None and self._connection(None).versions.get(key, (0, -1))[1] >= version

    def metadata(self, topics: Sequence[Any] | None = ()) -> MetadataResponse:
        """Brokers, the controller, and these topics (None: all); no topic is made by the question."""
        request = MetadataRequest(topics=None if topics is None else list(topics), allow_auto_topic_creation=False)
        response = self.ask(request, min_version=1)
        assert isinstance(response, MetadataResponse)
        return response

    def controller(self) -> int | None:
        """The broker that is asked for changes: brokers before KRaft do not pass them on."""
        found = self.metadata()
        return found.controller_id if any(each.node_id == found.controller_id for each in found.brokers) else None

    def _connection(self, node_id: int | None) -> BrokerConnection:
        if node_id is None:
            if self._any is None or not self._any.is_usable:
                self.open()
            assert self._any is not None
            return self._any
        found = self._of_brokers.get(node_id)
        if found is None or not found.is_usable:
            found = self._of_brokers[node_id] = self._connected_to(node_id)
        return found

    def _connected_to(self, node_id: int) -> BrokerConnection:
        for broker in self.metadata().brokers:
            if broker.node_id == node_id:
                connection = BrokerConnection(Address(broker.host, broker.port), self.access, CONNECTED_WITHIN_S)
                try:
                    connection.open()
                except NotReached as error:
                    message = f"broker {node_id}: {error}"
                    raise (Passing(message) if error.passes else CommandFailed(message)) from error
                return connection
        raise UnknownBroker(f"no broker with the id {node_id} runs")


@contextmanager
def admin_client(options: ClientOptions) -> Iterator[AdminClient]:
    """An ``AdminClient`` of a cluster that has let the user in."""
    addresses = parse_addresses(options.bootstrap)
    settings, access = heeded_settings(options)
    client = AdminClient(addresses, access, _seconds(settings, "request.timeout.ms", _REQUEST_TIMEOUT_S))
    client.open(_seconds(settings, "bootstrap.timeout.ms", REACHED_WITHIN_S), advises=True)
    try:
        yield client
    except CommandFailed as error:
        if client.doubt is None:
            raise
        raise CommandFailed(f"{error}\n{client.doubt}") from error
    finally:
        client.close()


def heeded_settings(options: ClientOptions) -> tuple[ClientSettings, Access]:
    """The settings of these commands' connections, and who the client is.

    A usage error for an ``-X`` that is none of theirs; ``CommandFailed`` for a login that librdkafka alone knows.
    """
    settings = gathered(options, _HEEDED.__contains__)
    for name in settings.texts:
        _check_name(name)
    access = settings.access()
    if not access.is_known:
        raise CommandFailed(f"this login serves produce and consume alone: {access.mechanism or access.protocol}")
    return settings, access


def _check_name(name: str) -> None:
    """A usage error for a setting that is none, and for one of security or of addresses that is not heeded here."""
    if name in _HEEDED:
        return
    if name in ADDRESSES:
        raise typer.BadParameter(f"-X {name}: {ADDRESSES_ELSEWHERE}")
    from pybroker.cli.connection.data_clients import is_known

    if not is_known(name):
        near = difflib.get_close_matches(name, _HEEDED, 1)
        raise typer.BadParameter(f"-X {name}: unknown client setting" + (f"; {near[0]}?" if near else ""))
    if name.startswith(OF_SECURITY):
        raise typer.BadParameter(f"-X {name}: produce and consume alone heed this setting")


def _seconds(settings: ClientSettings, name: str, default: float) -> float:
    text = settings.texts.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= INT32_MAX):
        raise typer.BadParameter(f"-X {name}: {text!r} is no number of milliseconds from 1 to {INT32_MAX}")
    return int(text) / 1_000
