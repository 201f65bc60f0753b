"""Envelopes: a client's whole request inside of a broker's (KIP-590).

Owns: how a client's principal and host are written there, and read.  Does not own who may send one
(``handlers/envelope``), nor the request inside.

A principal is Kafka's default form of it: a version in two bytes, and ``DefaultPrincipalData``.

Kafka counterpart: ForwardingManager.buildEnvelopeRequest and DefaultKafkaPrincipalBuilder.
"""

from __future__ import annotations

import socket
import struct

from pybroker_protocol import codec
from pybroker_protocol.messages.envelope import EnvelopeRequest
from pybroker_protocol.messages.principal import DefaultPrincipalData

_VERSION = 0
_VERSION_BYTES = struct.pack(">h", _VERSION)


def envelope(frame: bytes | memoryview, principal: str, client_host: str, *, by_token: bool = False) -> EnvelopeRequest:
    """The request that brings a client's ``frame``; the rest is that of its ``RequestContext``."""
    return EnvelopeRequest(
        request_data=bytes(frame),
        request_principal=_principal_bytes(principal, by_token),
        client_host_address=_address_bytes(client_host),
    )


def _principal_bytes(principal: str, by_token: bool) -> bytes:
    kind, _, name = principal.partition(":")
    data = DefaultPrincipalData(type=kind, name=name, token_authenticated=by_token)
    return _VERSION_BYTES + codec.encode(data, _VERSION)


def _address_bytes(client_host: str) -> bytes:
    """Four bytes or sixteen; an address of another family, which no client of a network has, is that of no host."""
    host = client_host.removeprefix("/").partition("%")[0]
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            return socket.inet_pton(family, host)
        except OSError:
            continue
    return bytes(4)
