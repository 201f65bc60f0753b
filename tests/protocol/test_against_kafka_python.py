"""What we encode, kafka-python decodes and encodes again into the same bytes: for every message that it has."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any

import kafka.protocol
import pytest
from kafka.protocol.api_header import RequestHeader as TheirRequestHeader
from kafka.protocol.api_header import ResponseHeader as TheirResponseHeader
from kafka.protocol.api_message import ApiMessage

from pybroker_protocol import codec
from pybroker_protocol.messages.api_versions import ApiVersionsResponse
from pybroker_protocol.messages.headers import RequestHeader, ResponseHeader

from .message_classes import message_classes, versions_of
from .random_messages import random_message

EXAMPLES = 5


@cache
def their_classes() -> dict[str, Any]:
    """kafka-python's message classes by name."""
    for module in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
        if not {"old", "generate_stubs"} & set(module.name.split(".")):
            importlib.import_module(module.name)
    return {cls.__name__: cls for cls in _subclasses(ApiMessage) if cls.__name__ in message_classes()}


def _subclasses(cls: Any) -> Iterator[Any]:
    for subclass in type.__subclasses__(cls):
        yield subclass
        yield from _subclasses(subclass)


def through_their_codec(cls: Any, version: int, encoded: bytes) -> bytes:
    """Decode and encode again with kafka-python."""
    theirs = cls.decode(encoded, version=version)
    # What its constructor would have set, and its decoder leaves out.
    theirs._header = theirs._version = None
    return bytes(theirs.encode(version=version))


@pytest.mark.parametrize("name", sorted(their_classes()))
def test_kafka_python_reads_what_we_write_and_writes_the_same(name: str) -> None:
    ours, theirs, random = message_classes()[name], their_classes()[name], Random(name)
    for version in versions_of(ours):
        for _ in range(EXAMPLES if version <= theirs.max_version else 0):
            message = random_message(random, ours, version)
            if isinstance(message, ApiVersionsResponse):
                message.error_code = 0  # kafka-python reads the body of an error as version 0
            encoded = codec.encode(message, version)
            again = through_their_codec(theirs, version, encoded)
            assert again == encoded
            assert codec.decode(ours, version, again) == message


def test_kafka_python_has_most_messages() -> None:
    assert len(their_classes()) > 100


@pytest.mark.parametrize(("version", "flexible"), [(1, False), (2, True)])
@pytest.mark.parametrize("client_id", [None, "", "client"])
def test_request_header_is_read(version: int, flexible: bool, client_id: str | None) -> None:
    ours = RequestHeader(request_api_key=3, request_api_version=12, correlation_id=77, client_id=client_id)
    theirs = TheirRequestHeader(request_api_key=3, request_api_version=12, correlation_id=77, client_id=client_id)
    assert codec.decode(RequestHeader, version, bytes(theirs.encode(flexible=flexible))) == ours


@pytest.mark.parametrize(("version", "flexible"), [(0, False), (1, True)])
def test_response_header_is_written(version: int, flexible: bool) -> None:
    encoded = codec.encode(ResponseHeader(correlation_id=77), version)
    assert encoded == bytes(TheirResponseHeader(correlation_id=77).encode(flexible=flexible))
