"""Clients that ask whether a login's end is kept: plain sockets with TLS and SCRAM, which no library can keep in order.

Owns: a connection that logs in, logs in anew and asks small things.  What is asked when is the worker's.
"""

from __future__ import annotations

import os
import ssl
import time
from typing import Any, NoReturn

from harness.broker_probe import host_and_port
from harness.wire import Client, WrongReply

from histories.clients import CALL_S, Consumer, Failed, Names, OnRebalance, OnRecord, Producer
from pybroker.security.client_access import ClientAccess
from pybroker.security.sasl import SaslError
from pybroker.security.scram import MECHANISMS, ScramClient
from pybroker_protocol.messages.metadata import MetadataRequest
from pybroker_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pybroker_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pybroker_protocol.messages.sasl_handshake import SaslHandshakeRequest
from pybroker_protocol.schema import Request

HANDSHAKE_VERSION, AUTHENTICATE_VERSION, METADATA_VERSION, COMMIT_VERSION = 1, 2, 9, 8
# What everybody may ask who has logged in.
LITTLE = MetadataRequest(topics=[])
# Of this group nobody is a member, and nobody looks at what it has committed.
GROUP = "asking"


def repeated_commit(names: Names) -> OffsetCommitRequest:
    """What a broker may serve by a way of its own where it is repeated, and then has to end as well."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
    topic = OffsetCommitRequestTopic(name=names.topic(next(iter(names.partitions))), partitions=[partition])
    return OffsetCommitRequest(
        group_id=names.prefix + GROUP, generation_id_or_member_epoch=-1, member_id="", topics=[topic]
    )


class WireClients:
    """A library in name: its clients neither write nor read."""

    name = "wire"

    def __init__(self, access: ClientAccess, names: Names) -> None:
        self._access = access
        self._names = names

    def connection(self, *, commits: bool) -> ProbingConnection:
        """A connection that has not logged in yet; what it asks is the same all the time.  Raises ``Failed``."""
        asked = (repeated_commit(self._names), COMMIT_VERSION) if commits else (LITTLE, METADATA_VERSION)
        try:
            return ProbingConnection(self._access, *asked)
        except OSError as failure:
            raise Failed(failure) from failure

    def producer(self, kind: str, transactional_id: str | None) -> Producer:
        raise NotImplementedError

    def consumer(
        self, isolation: str, group: str | None, protocol: str, on_record: OnRecord, on_rebalance: OnRebalance
    ) -> Consumer:
        raise NotImplementedError

    def rest(self, seconds: float) -> None:
        time.sleep(seconds)


class ProbingConnection(Client):
    """One connection over TLS; every request raises ``Failed`` where the connection has ended."""

    def __init__(self, access: ClientAccess, asked: Request, version: int) -> None:
        self._asked, self._version = asked, version
        address = host_and_port(access.bootstrap)
        super().__init__(address, CALL_S)
        assert access.mechanism is not None
        self._mechanism = MECHANISMS[access.mechanism]
        self._access = access
        try:
            context = ssl.create_default_context(cafile=str(access.ca))
            self._socket = context.wrap_socket(self._socket, server_hostname=address[0])
        except OSError:
            self.close()
            raise

    def log_in(self) -> int:
        """Log in, be it anew; for how many milliseconds it is good."""
        mechanism, password = self._mechanism, self._access.password.encode()
        client = ScramClient(
            mechanism, self._access.user, lambda salt, n: mechanism.salted(password, salt, n), os.urandom(18)
        )
        self._taken(SaslHandshakeRequest(mechanism=mechanism.name), HANDSHAKE_VERSION)
        first = self._taken(SaslAuthenticateRequest(auth_bytes=client.first()), AUTHENTICATE_VERSION)
        try:
            proof = client.final(bytes(first.auth_bytes))
        except SaslError as failure:
            raise Failed(failure) from failure
        last = self._taken(SaslAuthenticateRequest(auth_bytes=proof), AUTHENTICATE_VERSION)
        return int(last.session_lifetime_ms)

    def ask_a_little(self) -> None:
        """Have any answer."""
        self._answered(self._asked, self._version)

    def _taken(self, request: Request, version: int) -> Any:
        answer = self._answered(request, version)
        if answer.error_code:
            raise Failed(f"{type(request).__name__}: error {answer.error_code}")
        return answer

    def _answered(self, request: Request, version: int) -> Any:
        try:
            answer = self.ask(request, version)
        except (OSError, WrongReply) as failure:
            raise Failed(failure, unknown=True) from failure
        return self._ended() if answer is None else answer

    def _ended(self) -> NoReturn:
        raise Failed("the broker closed the connection", unknown=True)
